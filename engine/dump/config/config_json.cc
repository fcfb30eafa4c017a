#include "engine/dump/config/config_json.h"

#include <fmt/format.h>

#include "engine/base/text.h"
#include "engine/model/names.h"

namespace msprobe::dump {
namespace {

std::string Text(std::string_view text) {
  std::string json;
  AppendJsonString(&json, text);
  return json;
}

std::string Item(const std::string& text) { return Text(text); }
std::string Item(int64_t number) { return fmt::format("{}", number); }
std::string Item(bool value) { return value ? "true" : "false"; }

template <typename T>
std::string List(const std::vector<T>& items) {
  std::string json = "[";
  for (const T& item : items) {
    if (json.size() > 1) json += ", ";
    json += Item(item);
  }
  return json + "]";
}

template <typename T>
std::string OrNull(const std::optional<T>& value) {
  return value ? Item(*value) : "null";
}

std::string TextOrNull(const std::string& text) { return text.empty() ? "null" : Text(text); }

// The words that select the mode; of a mode that only data_mode_rule "or" makes, its four parts.
std::vector<std::string> DataModes(const DataMode& mode) {
  const bool input = mode.forward_input || mode.backward_input;
  const bool output = mode.forward_output || mode.backward_output;
  if ((mode.forward() && input) == mode.forward_input &&
      (mode.forward() && output) == mode.forward_output &&
      (mode.backward() && input) == mode.backward_input &&
      (mode.backward() && output) == mode.backward_output) {
    std::vector<std::string> words;
    if (!mode.backward()) words.emplace_back("forward");
    if (!mode.forward()) words.emplace_back("backward");
    if (!output) words.emplace_back("input");
    if (!input) words.emplace_back("output");
    return words.empty() ? std::vector<std::string>{"all"} : words;
  }
  std::vector<std::string> parts;
  if (mode.forward_input) parts.emplace_back("forward_input");
  if (mode.forward_output) parts.emplace_back("forward_output");
  if (mode.backward_input) parts.emplace_back("backward_input");
  if (mode.backward_output) parts.emplace_back("backward_output");
  return parts;
}

std::string_view SummaryWord(const SummaryMode& summary) {
  if (summary.checksum == kernels::Checksum::kXor) return "xor";
  return summary.checksum == kernels::Checksum::kCrc32 ? "md5" : "statistics";
}

std::string_view RiskWord(RiskLevel level) {
  return level == RiskLevel::kCore ? "CORE" : level == RiskLevel::kFocus ? "FOCUS" : "ALL";
}

}  // namespace

std::string ConfigJson(const Config& config) {
  const std::pair<std::string_view, std::string> members[] = {
      {"task", Text(TaskName(config.task))},
      {"level", Text(LevelName(config.level))},
      {"dump_path", Text(config.dump_path)},
      {"rank", List(config.rank)},
      {"step", List(config.step)},
      {"scope", List(config.scope)},
      {"list", List(config.list)},
      {"tensor_list", List(config.tensor_list)},
      {"data_mode", List(DataModes(config.data_mode))},
      {"summary_mode", Text(SummaryWord(config.summary))},
      {"dump_enable", OrNull(config.dump_enable)},
      {"extra_info", Item(config.extra_info)},
      {"async_dump", Item(config.async_dump)},
      {"risk_level", Text(RiskWord(config.risk_level))},
      {"bench_path", TextOrNull(config.bench_path)},
      {"diff_nums", Item(config.diff_nums)},
      {"overflow_nums", Item(config.overflow_nums)},
      {"request_id", TextOrNull(config.request_id)},
      {"baseline", TextOrNull(config.baseline)},
      {"custom_op_namespaces", List(config.custom_op_namespaces)},
      {"seed", OrNull(config.seed)},
      {"is_deterministic", OrNull(config.is_deterministic)},
      {"enable_dataloader", Item(config.enable_dataloader)},
  };
  std::string json = "{";
  for (const auto& [key, value] : members) {
    if (json.size() > 1) json += ", ";
    json += fmt::format("\"{}\": {}", key, value);
  }
  return json + "}";
}

}  // namespace msprobe::dump
