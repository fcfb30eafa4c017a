// The section of task free_benchmark: how calls are run a second time, and which of them.
//
//   MSPROBE_RETURN_IF_ERROR(ReadFreeBenchmarkRule(place, value, &config.free_benchmark));
//   MSPROBE_RETURN_IF_ERROR(CheckFreeBenchmark(path, &config.free_benchmark, &config.warnings));
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/dump/config/config_values.h"

namespace msprobe::dump {

// In the order of kPerturbations. What is different when a call runs a second time.
enum class Perturbation : uint8_t {
  kImprovePrecision,  // float16 and bfloat16 become float32
  kAddNoise,          // a small number is added to the first float tensor
  kBitNoise,          // the last bit of the elements of the first float tensor is flipped
  kNoChange,          // nothing
  kChangeValue,       // the ends of the first float tensor are swapped
  kToCpu,             // it runs on the CPU; float16 and bfloat16 become float32
};
inline constexpr std::string_view kPerturbations[] = {
    "improve_precision", "add_noise", "bit_noise", "no_change", "change_value", "to_cpu"};

struct FreeBenchmarkRules {
  Perturbation perturbation = Perturbation::kImprovePrecision;
  std::string device;     // "npu", "cpu"; "": not given
  bool fix = false;       // the second result takes the place of the first
  bool backward = false;  // gradients are judged, not results
  bool preheat = false;   // the first steps find a limit for each API
  int64_t preheat_steps = 15;
  int64_t max_sample = 20;  // calls of a step that are judged while the limits are looked for
  double budget = 1;        // extra time, as a share of the time of the training; 0: no limit
  bool has_budget = false;  // it was given

  std::string_view name() const { return kPerturbations[static_cast<size_t>(perturbation)]; }
  // Whether another precision or device gives the second result.
  bool other_precision() const {
    return perturbation == Perturbation::kImprovePrecision || perturbation == Perturbation::kToCpu;
  }
};

inline constexpr std::string_view kFuzzDevices[] = {"npu", "cpu"};
inline constexpr std::string_view kFuzzLevels[] = {"L1"};
inline constexpr std::string_view kFuzzStages[] = {"forward", "backward"};
inline constexpr std::string_view kHandlerTypes[] = {"check", "fix"};

// One of the keys "fuzz_device", "pert_mode", "handler_type", "fuzz_level", "fuzz_stage",
// "if_preheat", "preheat_step", "max_sample", "budget".
Status ReadFreeBenchmarkRule(const ConfigPlace& place, const formats::JsonValue& value,
                             FreeBenchmarkRules* rules);
// Refuses keys that contradict each other; a key without effect becomes a warning.
Status CheckFreeBenchmark(std::string_view path, FreeBenchmarkRules* rules,
                          std::vector<Message>* warnings);

}  // namespace msprobe::dump
