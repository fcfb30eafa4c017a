#include "engine/dump/config/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/file.h"
#include "engine/dump/config/config_effects.h"
#include "engine/dump/config/config_keys.h"
#include "engine/dump/config/config_values.h"
#include "engine/formats/text/json.h"
#include "engine/model/names.h"

namespace msprobe::dump {
namespace {

constexpr size_t kLargestConfig = 1 << 20;
constexpr int64_t kLargestCount = 1'000'000'000;
constexpr int64_t kLargestSeed = UINT32_MAX;  // what NumPy takes

// The keys that the section of a task may hold. kTaskKeys ends with the keys of tasks tensor,
// overflow_check, grad_probe and free_benchmark, in this order: statistics has none of these,
// tensor the first two.
Names SectionKeys(Task task) {
  constexpr size_t kShared = 2;  // "scope" and "list", which begin the keys of free_benchmark
  constexpr size_t kOfOthers =
                       2 + std::size(kGradProbeKeys) + std::size(kFreeBenchmarkKeys) - kShared,
                   kOfTensor = 2;
  if (task == Task::kFreeBenchmark) return kFreeBenchmarkKeys;
  if (task == Task::kGradProbe) return kGradProbeKeys;
  if (task == Task::kNanCheck) return kNanCheckKeys;
  if (task == Task::kOverflowCheck) return kOverflowKeys;
  return Names(kTaskKeys).first(std::size(kTaskKeys) - kOfOthers -
                                (task == Task::kTensor ? 0 : kOfTensor));
}

class ConfigReader {
 public:
  ConfigReader(std::string_view path, const ConfigOverrides& overrides)
      : path_(path), overrides_(overrides) {}

  Result<Config> Read(const formats::JsonValue& root) {
    if (root.kind != formats::JsonValue::Kind::kObject) {
      return InvalidConfig(path_, root.line)
          .Expected("an object: {{\"task\": \"statistics\", ...}}"_t)
          .Found(root.Describe());
    }
    MSPROBE_RETURN_IF_ERROR(ReadMembers(root));
    ResolveDataMode();
    MSPROBE_RETURN_IF_ERROR(CheckTask());
    if (config_.level == Level::kL2) {
      config_.warnings.push_back(
          "{}level L2 records kernels of NPU devices only: nothing is collected"_t(level_place_));
    }
    if (config_.level == Level::kDebug) {
      LeaveSelectionToScript(&config_);
      has_diff_nums_ = false;
    }
    MSPROBE_RETURN_IF_ERROR(CheckSearch());
    MSPROBE_RETURN_IF_ERROR(CheckBaseline());
    if (config_.task == Task::kOverflowCheck) MSPROBE_RETURN_IF_ERROR(OutputsAreSeen());
    return std::move(config_);
  }

 private:
  Status ReadMembers(const formats::JsonValue& root) {
    for (const formats::JsonMember& member : root.members) MSPROBE_RETURN_IF_ERROR(Top(member));
    MSPROBE_RETURN_IF_ERROR(Override());
    const std::string_view section_name = TaskName(config_.task);
    if (const formats::JsonValue* section = root.Find(section_name); section != nullptr) {
      for (const formats::JsonMember& member : section->members)
        MSPROBE_RETURN_IF_ERROR(InSection(section_name, member));
    }
    return Status::Ok();
  }

  Status CheckTask() {
    if (config_.task == Task::kStructure) return CheckStructure();
    if (config_.task == Task::kNanCheck) return CheckNan();
    if (config_.task == Task::kFreeBenchmark) return CheckRepeats();
    if (config_.task == Task::kGradProbe) LeaveStepsToOptimizers(&config_);
    return Status::Ok();
  }

  ConfigPlace At(const formats::JsonMember& member) const {
    return {path_, member.line, member.key};
  }

  // nullptr: the key is no flag.
  bool* FlagNamed(std::string_view key) {
    if (key == "extra_info") return &config_.extra_info;
    if (key == "async_dump") return &config_.async_dump;
    if (key == "link_equal_tensors") return &config_.link_equal_tensors;
    if (key == "enable_dataloader") return &config_.enable_dataloader;
    if (key == "reuse") return &config_.reuse;
    if (key == "sketch") return &config_.sketch;
    if (key == "optimizer") return &config_.optimizer;
    if (key == "dump_enable") return &config_.dump_enable.emplace();
    return key == "is_deterministic" ? &config_.is_deterministic.emplace() : nullptr;
  }

  Status Top(const formats::JsonMember& member) {
    const std::string_view key = member.key;
    const formats::JsonValue& value = member.value;
    if (Contains(kTasks, key) || Contains(OtherTasks(), key)) {
      if (value.kind != formats::JsonValue::Kind::kObject &&
          value.kind != formats::JsonValue::Kind::kNull)
        return WrongType(At(member), "an object"_t, value);
      // The section of the configured task is read later. Sections of other tasks are not read.
      return Status::Ok();
    }
    if (!Contains(kTopKeys, key)) return UnknownKey(path_, "", member, &config_.warnings);
    if (value.kind == formats::JsonValue::Kind::kNull) return Status::Ok();  // as if left out
    if (key == "rank") return ReadNumbers(At(member), value, &config_.rank);
    if (key == "step") return ReadNumbers(At(member), value, &config_.step);
    if (bool* flag = FlagNamed(key); flag != nullptr) return ReadBool(At(member), value, flag);
    if (key == "tensor_files") return TensorFiles(member);
    if (key == "seed")
      return ReadInteger(At(member), value, 0, kLargestSeed, &config_.seed.emplace());
    if (key == "precision") return Precision(member);
    if (key == "risk_level") return Risk(member);
    if (key == "weights") return Weights(member);
    if (key == "custom_op_namespaces") return Namespaces(member);
    if (value.kind != formats::JsonValue::Kind::kString)
      return WrongType(At(member), "a string"_t, value);
    if (key == "baseline" || key == "baseline_action") return Baseline(At(member), value.text);
    if (key == "$schema") return Status::Ok();  // tells an editor where the schema is
    return Word(At(member), value.text);
  }

  Status Namespaces(const formats::JsonMember& member) {
    config_.custom_op_namespaces.clear();
    MSPROBE_RETURN_IF_ERROR(ReadStrings(At(member), member.value, &config_.custom_op_namespaces));
    if (std::erase(config_.custom_op_namespaces, "_c10d_functional") > 0)
      Warn(member,
           "{} \"_c10d_functional\" is left out: results have not arrived when a call returns"_t(
               Quoted(member.key)));
    return Status::Ok();
  }

  Status TensorFiles(const formats::JsonMember& member) {
    std::string word;
    MSPROBE_RETURN_IF_ERROR(ReadWord(At(member), member.value, kTensorFiles, &word));
    config_.packed_tensors = word == "packed";
    return Status::Ok();
  }

  Status Precision(const formats::JsonMember& member) {
    std::string word;
    MSPROBE_RETURN_IF_ERROR(ReadWord(At(member), member.value, kPrecisions, &word));
    Warn(member, "{} has no effect: statistics are always accumulated in double precision"_t(
                     Quoted(member.key)));
    return Status::Ok();
  }

  Status Risk(const formats::JsonMember& member) {
    std::string word;
    MSPROBE_RETURN_IF_ERROR(ReadWord(At(member), member.value, kRiskLevels, &word));
    config_.risk_level = word == "CORE"    ? RiskLevel::kCore
                         : word == "FOCUS" ? RiskLevel::kFocus
                                           : RiskLevel::kAll;
    return Status::Ok();
  }

  Status Weights(const formats::JsonMember& member) {
    std::string word;
    MSPROBE_RETURN_IF_ERROR(ReadWord(At(member), member.value, kWeightSteps, &word));
    config_.weights = word == "first_step" ? WeightSteps::kFirst
                      : word == "none"     ? WeightSteps::kNone
                                           : WeightSteps::kEach;
    return Status::Ok();
  }

  Status DumpPath(const ConfigPlace& place, const std::string& word) {
    if (word.empty()) return place.Error().Expected("a folder"_t).Found("an empty string"_t);
    if (word.find('\0') != std::string::npos)
      return place.Error().Expected("a folder"_t).Found(Excerpt(word));
    config_.dump_path = word;
    return Status::Ok();
  }

  // task, level and dump_path, from the file or from a keyword argument.
  Status Word(const ConfigPlace& place, const std::string& word) {
    const bool is_task = place.key == "task", is_level = place.key == "level";
    // An argument wins over the file. The file's value is then not checked.
    const std::optional<std::string>& argument = is_task    ? overrides_.task
                                                 : is_level ? overrides_.level
                                                            : overrides_.dump_path;
    if (!place.path.empty() && argument.has_value()) return Status::Ok();
    if (!is_task && !is_level) return DumpPath(place, word);
    if (word.empty()) return Status::Ok();  // the default, as in older generations
    if (is_task) {
      MSPROBE_RETURN_IF_ERROR(Choose(place, word, kTasks, OtherTasks()));
      config_.task = TaskNamed(word);
    } else {
      if (word == "L2") {
        config_.level = Level::kL2;
        level_place_ = place.Prefix();
        return Status::Ok();
      }
      MSPROBE_RETURN_IF_ERROR(Choose(place, word, kLevels, {}));
      config_.level = LevelNamed(word);
    }
    return Status::Ok();
  }

  Status Baseline(const ConfigPlace& place, const std::string& word) {
    const bool is_path = place.key == "baseline";
    if (!place.path.empty() && (is_path ? overrides_.baseline : overrides_.baseline_action))
      return Status::Ok();
    if (is_path) {
      if (word.find('\0') != std::string::npos)
        return place.Error().Expected("a folder"_t).Found(Excerpt(word));
      config_.baseline = word;
      return Status::Ok();
    }
    has_action_ = !word.empty();
    if (word.empty()) return Status::Ok();
    MSPROBE_RETURN_IF_ERROR(Choose(place, word, kBaselineActions));
    config_.baseline_action = word == "raise"  ? BaselineAction::kRaise
                              : word == "stop" ? BaselineAction::kStop
                                               : BaselineAction::kGoOn;
    return Status::Ok();
  }

  Status Override() {
    if (overrides_.baseline)
      MSPROBE_RETURN_IF_ERROR(Baseline({{}, 0, "baseline"}, *overrides_.baseline));
    if (overrides_.baseline_action)
      MSPROBE_RETURN_IF_ERROR(Baseline({{}, 0, "baseline_action"}, *overrides_.baseline_action));
    if (overrides_.task) MSPROBE_RETURN_IF_ERROR(Word({{}, 0, "task"}, *overrides_.task));
    if (overrides_.level) MSPROBE_RETURN_IF_ERROR(Word({{}, 0, "level"}, *overrides_.level));
    if (overrides_.dump_path)
      MSPROBE_RETURN_IF_ERROR(Word({{}, 0, "dump_path"}, *overrides_.dump_path));
    if (overrides_.step) {
      config_.step.clear();
      MSPROBE_RETURN_IF_ERROR(ReadNumbers({{}, 0, "step"}, *overrides_.step, &config_.step));
    }
    return Status::Ok();
  }

  Status InSection(std::string_view section, const formats::JsonMember& member) {
    if (config_.task == Task::kStructure) {
      return InvalidConfig(path_, member.line)
          .Says("{} in \"structure\": task structure has no keys"_t(Excerpt(member.key)))
          .Hint("remove the key"_t);
    }
    if (!Contains(kTaskKeys, member.key))
      return UnknownKey(path_, section, member, &config_.warnings);
    const Names allowed = SectionKeys(config_.task);
    if (!Contains(allowed, member.key)) {
      return InvalidConfig(path_, member.line)
          .Says("{} has no meaning in task {}"_t(Quoted(member.key), section))
          .Expected(OneOf(allowed));
    }
    if (member.value.kind == formats::JsonValue::Kind::kNull) return Status::Ok();
    if (config_.task == Task::kGradProbe)
      return ReadGradientRule(At(member), member.value, &config_.gradients);
    if (member.key == "scope") return Scope(member);
    if (member.key == "list") return ReadStrings(At(member), member.value, &config_.list);
    if (config_.task == Task::kFreeBenchmark)
      return ReadFreeBenchmarkRule(At(member), member.value, &config_.free_benchmark);
    if (member.key == "data_mode") return ReadDataMode(member);
    if (member.key == "data_mode_rule")
      return ReadWord(At(member), member.value, kDataModeRules, &data_mode_rule_);
    if (member.key == "tensor_list") return TensorList(member);
    if (member.key == "overflow_nums") return CallsToTheEnd(member, &config_.overflow_nums);
    if (member.key == "diff_nums") {
      has_diff_nums_ = true;
      return CallsToTheEnd(member, &config_.diff_nums);
    }
    if (member.key == "bench_path") return Text(member, &config_.bench_path);
    if (member.key == "check_mode") return CheckMode(member);
    if (member.key == "slice") return ReadSlices(At(member), member.value, &config_.slice);
    if (member.key == "request_id") return Text(member, &config_.request_id);
    return ReadSummaryMode(At(member), member.value, &config_.summary, &config_.warnings);
  }

  Status TensorList(const formats::JsonMember& member) {
    MSPROBE_RETURN_IF_ERROR(ReadStrings(At(member), member.value, &config_.tensor_list));
    if (config_.task == Task::kTensor && !config_.tensor_list.empty()) {
      return At(member)
          .Error()
          .Says("\"tensor_list\" belongs to task statistics: task tensor saves every tensor"_t)
          .Hint("use \"list\" to record fewer entries"_t);
    }
    return Status::Ok();
  }

  Status CheckMode(const formats::JsonMember& member) {
    std::string word;
    MSPROBE_RETURN_IF_ERROR(ReadWord(At(member), member.value, kCheckModes, &word));
    Warn(member, "{} has no effect: it chooses units of an NPU"_t(Quoted(member.key)));
    return Status::Ok();
  }

  Status CheckStructure() {
    if (!config_.extra_info) {
      return InvalidConfig(path_)
          .Says(
              "task structure writes stack.json and construct.json, \"extra_info\": false no "
              "file"_t)
          .Hint("remove \"extra_info\""_t);
    }
    if (config_.level != Level::kL0 && config_.level != Level::kMix) {
      config_.warnings.push_back("task structure records modules: level mix is used"_t);
      config_.level = Level::kMix;
    }
    return Status::Ok();
  }

  Status CheckNan() {
    MSPROBE_RETURN_IF_ERROR(ApisAreSeen());
    return OutputsAreSeen();
  }

  Status CheckRepeats() {
    MSPROBE_RETURN_IF_ERROR(ApisAreSeen());
    return CheckFreeBenchmark(path_, &config_.free_benchmark, &config_.warnings);
  }

  // For tasks that look at calls of APIs only.
  Status ApisAreSeen() {
    if (config_.level == Level::kL1 || config_.level == Level::kL2) return Status::Ok();
    return InvalidConfig(path_)
        .Says("task {} looks at API calls"_t(TaskName(config_.task)))
        .Expected(std::string("\"level\": \"L1\""))
        .Found(Quoted(LevelName(config_.level)));
  }

  Status Text(const formats::JsonMember& member, std::string* text) {
    if (member.value.kind != formats::JsonValue::Kind::kString)
      return WrongType(At(member), "a string"_t, member.value);
    *text = member.value.text;
    return Status::Ok();
  }

  Status CallsToTheEnd(const formats::JsonMember& member, int64_t* calls) {
    MSPROBE_RETURN_IF_ERROR(ReadInteger(At(member), member.value, -1, kLargestCount, calls));
    if (*calls != 0) return Status::Ok();
    return WrongType(At(member), "a number of calls, or -1 for no end"_t, member.value);
  }

  // Whole forward calls are compared with those of bench_path.
  Status CheckSearch() {
    if (config_.bench_path.empty()) {
      if (has_diff_nums_)
        config_.warnings.push_back("\"diff_nums\" has no effect without \"bench_path\""_t);
      return Status::Ok();
    }
    if (config_.bench_path.find('\0') != std::string::npos)
      return ConfigPlace{path_, 0, "bench_path"}
          .Error()
          .Expected("a folder"_t)
          .Found(Excerpt(config_.bench_path));
    DataMode& mode = config_.data_mode;
    const bool partial = !config_.slice.empty() || !config_.request_id.empty();
    if (partial || !mode.forward_input || !mode.forward_output) {
      return InvalidConfig(path_)
          .Says("\"bench_path\" compares inputs and outputs of forward calls"_t)
          .Expected(partial ? "no \"slice\" and no \"request_id\" beside it"_t
                            : "\"data_mode\" [\"all\"] or [\"forward\"]"_t)
          .Found(partial ? "parts of tensors"_t : "one that leaves some out"_t);
    }
    mode.backward_input = mode.backward_output = false;
    return Status::Ok();
  }

  // Whole calls, as `msprobe compare` sees them, are compared with those of the baseline.
  Status CheckBaseline() {
    if (config_.baseline.empty()) {
      if (has_action_)
        config_.warnings.push_back("\"baseline_action\" has no effect without \"baseline\""_t);
      return Status::Ok();
    }
    if (config_.level == Level::kDebug) {
      config_.warnings.push_back("\"baseline\" has no effect under level debug"_t);
      config_.baseline.clear();
      return Status::Ok();
    }
    if (config_.task != Task::kStatistics && config_.task != Task::kTensor) {
      return InvalidConfig(path_)
          .Says("\"baseline\" compares the values of calls"_t)
          .Expected("task \"statistics\" or \"tensor\""_t)
          .Found(fmt::format("\"{}\"", TaskName(config_.task)));
    }
    if (config_.bench_path.empty()) return Status::Ok();
    return InvalidConfig(path_)
        .Says("\"baseline\" and \"bench_path\" both compare each call with an earlier dump"_t)
        .Expected("one of them"_t)
        .Hint(
            "\"baseline\" records all calls and allows rounding; \"bench_path\" records only "
            "forward calls with other bits"_t);
  }

  // For tasks that look at outputs.
  Status OutputsAreSeen() {
    const DataMode& mode = config_.data_mode;
    if (mode.forward_output >= mode.forward_input && mode.backward_output >= mode.backward_input)
      return Status::Ok();
    return InvalidConfig(path_)
        .Says("task {} looks at outputs"_t(TaskName(config_.task)))
        .Expected("\"output\" beside \"input\" in \"data_mode\""_t)
        .Found("\"input\" alone"_t);
  }

  Status Scope(const formats::JsonMember& member) {
    MSPROBE_RETURN_IF_ERROR(ReadStrings(At(member), member.value, &config_.scope));
    std::vector<std::string>& scope = config_.scope;
    if (scope.empty()) return Status::Ok();
    if (scope.size() == 1) scope.push_back(scope[0]);  // as msprobe 1.0 did
    if (scope.size() != 2) {
      return At(member)
          .Error()
          .Expected("two entry names, the first and the last"_t)
          .Found(fmt::format("{}", scope.size()));
    }
    for (const std::string& name : scope) {
      const EntryName parsed = ParseEntryName(name);
      const bool known = parsed.call >= 0 && (parsed.direction == Direction::kForward ||
                                              parsed.direction == Direction::kBackward);
      const bool fits =
          parsed.is_module ? config_.level != Level::kL1 : config_.level != Level::kL0;
      if (known && fits) continue;
      const Message api = "an API call such as \"Functional.relu.0.forward\""_t;
      const Message module = "a module call such as \"Module.fc.Linear.forward.0\""_t;
      return At(member)
          .Error()
          .Expected(config_.level == Level::kL0   ? "{} (level L0)"_t(module)
                    : config_.level == Level::kL1 ? "{} (level L1)"_t(api)
                                                  : "{} or {}"_t(api, module))
          .Found(Excerpt(name, 80));
    }
    return Status::Ok();
  }

  Status ReadDataMode(const formats::JsonMember& member) {
    std::vector<std::string>& words = data_modes_;
    MSPROBE_RETURN_IF_ERROR(ReadStrings(At(member), member.value, &words));
    for (const std::string& word : words)
      MSPROBE_RETURN_IF_ERROR(Choose(At(member), word, kDataModes));
    if (std::find(words.begin(), words.end(), "all") != words.end() && words.size() > 1) {
      return At(member)
          .Error()
          .Expected("\"all\" alone, or other words without it"_t)
          .Found("{} words"_t(words.size()));
    }
    return Status::Ok();
  }

  void ResolveDataMode() {
    const auto has = [&](std::string_view word) {
      return std::find(data_modes_.begin(), data_modes_.end(), word) != data_modes_.end();
    };
    if (data_modes_.empty() || has("all")) return;
    DataMode& mode = config_.data_mode;
    if (data_mode_rule_ == "or") {
      mode = {.forward_input = has("forward") || has("input"),
              .forward_output = has("forward") || has("output"),
              .backward_input = has("backward") || has("input"),
              .backward_output = has("backward") || has("output")};
      return;
    }
    // A dimension that is not mentioned is not restricted.
    const bool forward = has("forward") || !has("backward");
    const bool backward = has("backward") || !has("forward");
    const bool input = has("input") || !has("output"), output = has("output") || !has("input");
    mode = {forward && input, forward && output, backward && input, backward && output};
  }

  void Warn(const formats::JsonMember& member, Message text) {
    config_.warnings.push_back(Message::Joined({At(member).Prefix(), std::move(text)}, ""));
  }

  std::string_view path_;
  const ConfigOverrides& overrides_;
  Config config_;
  std::vector<std::string> data_modes_;
  std::string data_mode_rule_, level_place_;
  bool has_diff_nums_ = false, has_action_ = false;
};

}  // namespace

Result<Config> ParseConfig(std::string_view text, std::string_view path,
                           const ConfigOverrides& overrides) {
  if (text.size() > kLargestConfig) {
    return InvalidConfig(path)
        .Expected("a configuration file of at most 1 MiB"_t)
        .Found("{} bytes"_t(text.size()));
  }
  MSPROBE_ASSIGN_OR_RETURN(const formats::JsonValue root, formats::ParseJson(text, path));
  return ConfigReader(path, overrides).Read(root);
}

Result<Config> LoadConfig(const std::string& path, const ConfigOverrides& overrides) {
  if (path.empty()) return ParseConfig("{}", "", overrides);
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  return ParseConfig(file.bytes(), path, overrides);
}

}  // namespace msprobe::dump
