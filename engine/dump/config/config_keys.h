// The keys and words that config.json may hold: ours, and those of older generations, for which an
// error or a warning says what to do instead.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/dump/config/config_values.h"
#include "engine/formats/text/json.h"

namespace msprobe::dump {

inline constexpr std::string_view kTopKeys[] = {"task",
                                                "dump_path",
                                                "rank",
                                                "step",
                                                "level",
                                                "extra_info",
                                                "async_dump",
                                                "link_equal_tensors",
                                                "tensor_files",
                                                "precision",
                                                "risk_level",
                                                "seed",
                                                "is_deterministic",
                                                "enable_dataloader",
                                                "optimizer",
                                                "reuse",
                                                "sketch",
                                                "weights",
                                                "baseline",
                                                "baseline_action",
                                                "dump_enable",
                                                "custom_op_namespaces",
                                                "$schema"};
inline constexpr std::string_view kTaskKeys[] = {
    "scope",      "list",       "data_mode",  "data_mode_rule", "summary_mode",  "tensor_list",
    "slice",      "request_id", "bench_path", "diff_nums",      "overflow_nums", "check_mode",
    "grad_level", "param_list", "bounds",     "fuzz_device",    "pert_mode",     "handler_type",
    "fuzz_level", "fuzz_stage", "if_preheat", "preheat_step",   "max_sample",    "budget"};
// The keys among them that the sections of the other tasks may hold.
inline constexpr std::string_view kNanCheckKeys[] = {"scope", "list", "data_mode", "data_mode_rule",
                                                     "tensor_list"};
inline constexpr std::string_view kOverflowKeys[] = {
    "scope", "list", "data_mode", "data_mode_rule", "overflow_nums", "check_mode"};
inline constexpr std::string_view kGradProbeKeys[] = {"grad_level", "param_list", "bounds"};
inline constexpr std::string_view kFreeBenchmarkKeys[] = {
    "scope",      "list",       "fuzz_device",  "pert_mode",  "handler_type", "fuzz_level",
    "fuzz_stage", "if_preheat", "preheat_step", "max_sample", "budget"};
inline constexpr std::string_view kCheckModes[] = {"all", "aicore", "atomic"};
inline constexpr std::string_view kTasks[] = {"statistics",    "tensor",         "structure",
                                              "nan_check",     "overflow_check", "grad_probe",
                                              "free_benchmark"};
inline constexpr std::string_view kLevels[] = {"L0", "L1", "mix", "debug"};
inline constexpr std::string_view kBaselineActions[] = {"go_on", "stop", "raise"};
inline constexpr std::string_view kDataModes[] = {"all", "forward", "backward", "input", "output"};
inline constexpr std::string_view kDataModeRules[] = {"and", "or"};
inline constexpr std::string_view kPrecisions[] = {"low", "high"};
inline constexpr std::string_view kWeightSteps[] = {"each_step", "first_step", "none"};
inline constexpr std::string_view kTensorFiles[] = {"separate", "packed"};
inline constexpr std::string_view kRiskLevels[] = {"ALL", "FOCUS", "CORE"};

// Tasks of older generations that this version does not have. Their sections may stand in the file,
// which is shared between tools.
std::span<const OtherWord> OtherTasks();

// Handles a key that is not among ours. `section`: the task in whose section it stands; empty at
// the top. A key of an older generation whose value changes nothing is added to `warnings`; any
// other key is an error.
Status UnknownKey(std::string_view path, std::string_view section,
                  const formats::JsonMember& member, std::vector<Message>* warnings);

}  // namespace msprobe::dump
