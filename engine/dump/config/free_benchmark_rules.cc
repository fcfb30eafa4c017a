#include "engine/dump/config/free_benchmark_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

namespace msprobe::dump {
namespace {

constexpr int64_t kMostSteps = 1'000'000;

Status ReadBudget(const ConfigPlace& place, const formats::JsonValue& value,
                  FreeBenchmarkRules* rules) {
  const char* end = value.text.data() + value.text.size();
  double budget = -1;
  const auto [stop, error] = std::from_chars(value.text.data(), end, budget);
  if (value.kind != formats::JsonValue::Kind::kNumber || error != std::errc() || stop != end ||
      !(budget >= 0 && budget <= 1e6)) {
    return WrongType(
        place, "extra time as a share of the training's time, such as 0.5, or 0 for no limit"_t,
        value);
  }
  rules->budget = budget;
  rules->has_budget = true;
  return Status::Ok();
}

Status ReadPerturbation(const ConfigPlace& place, const formats::JsonValue& value,
                        FreeBenchmarkRules* rules) {
  std::string word;
  MSPROBE_RETURN_IF_ERROR(ReadWord(place, value, kPerturbations, &word));
  const auto* found = std::find(std::begin(kPerturbations), std::end(kPerturbations), word);
  if (found != std::end(kPerturbations))
    rules->perturbation = static_cast<Perturbation>(found - std::begin(kPerturbations));
  return Status::Ok();
}

}  // namespace

Status ReadFreeBenchmarkRule(const ConfigPlace& place, const formats::JsonValue& value,
                             FreeBenchmarkRules* rules) {
  const std::string_view key = place.key;
  std::string word;
  if (key == "pert_mode") return ReadPerturbation(place, value, rules);
  if (key == "fuzz_device") return ReadWord(place, value, kFuzzDevices, &rules->device);
  if (key == "fuzz_level") return ReadWord(place, value, kFuzzLevels, &word);
  if (key == "if_preheat") return ReadBool(place, value, &rules->preheat);
  if (key == "preheat_step") return ReadInteger(place, value, 1, kMostSteps, &rules->preheat_steps);
  if (key == "max_sample") return ReadInteger(place, value, 1, kMostSteps, &rules->max_sample);
  if (key == "budget") return ReadBudget(place, value, rules);
  if (key == "handler_type") {
    MSPROBE_RETURN_IF_ERROR(ReadWord(place, value, kHandlerTypes, &word));
    rules->fix = word == "fix";
    return Status::Ok();
  }
  MSPROBE_RETURN_IF_ERROR(ReadWord(place, value, kFuzzStages, &word));
  rules->backward = word == "backward";
  return Status::Ok();
}

Status CheckFreeBenchmark(std::string_view path, FreeBenchmarkRules* rules,
                          std::vector<Message>* warnings) {
  const bool on_cpu = rules->perturbation == Perturbation::kToCpu;
  if (!rules->device.empty() && (rules->device == "cpu") != on_cpu) {
    return InvalidConfig(path)
        .Says(on_cpu ? "\"pert_mode\" \"{}\" runs on the CPU"_t(rules->name())
                     : "\"pert_mode\" \"{}\" runs on the device of the training"_t(rules->name()))
        .Expected(std::string(on_cpu ? "\"fuzz_device\": \"cpu\"" : "\"fuzz_device\": \"npu\""))
        .Found(Quoted(rules->device));
  }
  if (rules->fix && (!rules->other_precision() || rules->backward || rules->preheat)) {
    return InvalidConfig(path)
        .Says("\"handler_type\" \"fix\" puts better results in the place of the training's"_t)
        .Expected(
            "\"pert_mode\" \"improve_precision\" or \"to_cpu\", \"fuzz_stage\" \"forward\" and no "
            "\"if_preheat\""_t)
        .Found(rules->backward  ? std::string("\"fuzz_stage\" \"backward\"")
               : rules->preheat ? std::string("\"if_preheat\" true")
                                : fmt::format("\"pert_mode\" \"{}\"", rules->name()));
  }
  if (rules->fix && rules->has_budget)
    warnings->push_back(
        "\"budget\" has no effect under \"fix\": the result of each call is fixed"_t);
  if (rules->preheat && (on_cpu || rules->perturbation == Perturbation::kNoChange)) {
    warnings->push_back("\"if_preheat\" has no effect with \"pert_mode\" \"{}\""_t(rules->name()));
    rules->preheat = false;
  }
  return Status::Ok();
}

}  // namespace msprobe::dump
