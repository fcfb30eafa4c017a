#include "engine/dump/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/dump/names.h"
#include "engine/formats/json.h"

namespace msprobe {
namespace {

using Names = std::span<const std::string_view>;

constexpr size_t kLargestConfig = 1 << 20;
constexpr int64_t kLargestStep = 1'000'000;

constexpr std::string_view kTopKeys[] = {"task", "dump_path", "rank",
                                         "step", "level",     "extra_info"};
constexpr std::string_view kTaskKeys[] = {"scope", "list", "data_mode", "summary_mode",
                                          "tensor_list"};
constexpr std::string_view kTasks[] = {"statistics", "tensor"};
constexpr std::string_view kLevels[] = {"L0", "L1", "mix"};
constexpr std::string_view kDataModes[] = {"all", "forward", "backward", "input", "output"};
constexpr std::string_view kSummaryModes[] = {"statistics", "md5"};

// Of other generations, or not possible here. Their own sections may stand in the file: it is
// shared between tools.
constexpr std::string_view kOtherTasks[] = {"structure",      "nan_check",      "acc_check",
                                            "diff_check",     "exception_dump", "overflow_check",
                                            "free_benchmark", "grad_probe",     "run_ut"};
constexpr std::string_view kOtherLevels[] = {"L2", "debug"};
constexpr std::string_view kOtherSummaryModes[] = {"xor"};

// A key of some generation that has no counterpart. `harmless` lists the values (as JSON, blanks
// between them) under which leaving it out records the same.
struct OtherKey {
  std::string_view key, harmless, why;
};
constexpr OtherKey kOtherTopKeys[] = {
    {"async_dump", "false", "tensors are always written in the background, in bounded memory"},
    {"precision", "\"low\" \"high\"", "statistics are always accumulated in double precision"},
    {"risk_level", "\"ALL\" \"FOCUS\"", "every API is recorded; use \"list\" to record fewer"},
    {"dump_enable", "true", "the file is read once; use start() and stop() in the script"},
    {"custom_op_namespaces", "[] [\"_C_ascend\"]",
     "operators of other namespaces are not observed"},
    {"seed", "1234", "collecting never seeds anything; call torch.manual_seed in the script"},
    {"is_deterministic", "false",
     "collecting changes no setting; call torch.use_deterministic_algorithms in the script"},
    {"enable_dataloader", "false", "call start(), stop() and step() in the script"},
    {"acl_config", "\"\"", "kernel-level dumps need the vendor's tool"},
};
constexpr OtherKey kOtherTaskKeys[] = {
    {"slice", "[]", "whole tensors are recorded"},
    {"request_id", "\"\"", "whole steps are recorded"},
    {"bench_path", "\"\"", "compare the dumps afterwards: msprobe compare -tp A -gp B"},
    {"diff_nums", "1", "compare the dumps afterwards: msprobe compare -tp A -gp B"},
    {"backward_input", "[] \"\"", "kernel-level dumps need the vendor's tool"},
    {"file_format", "\"\" \"npy\" \"pt\"", "tensors are written in the framework's own format"},
    {"online_run_ut", "false", "dump to files and check them afterwards"},
    {"nfs_path", "\"\"", "dump to files and check them afterwards"},
    {"host", "\"\"", "dump to files and check them afterwards"},
    {"port", "-1", "dump to files and check them afterwards"},
    {"tls_path", "\"\" \"./\"", "dump to files and check them afterwards"},
};

bool Contains(Names names, std::string_view word) {
  return std::find(names.begin(), names.end(), word) != names.end();
}

std::string Quoted(std::string_view text) { return fmt::format("\"{}\"", text); }

// "a", "b" or "c"
std::string OneOf(Names names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += Quoted(names[i]);
  }
  return text;
}

// A small value as JSON, to look it up in OtherKey::harmless.
std::string JsonOf(const JsonValue& value) {
  if (value.kind == JsonValue::Kind::kString) return Quoted(value.text);
  if (value.kind != JsonValue::Kind::kArray) return value.Describe();
  std::string text = "[";
  for (const JsonValue& item : value.items) text += (text.size() > 1 ? "," : "") + JsonOf(item);
  return text + "]";
}

// Where a value stands, for its messages: a line of the file, or a keyword argument.
struct Place {
  std::string_view path;  // empty: a keyword argument
  uint64_t line = 0;
  std::string_view key;

  Status Error() const {
    if (path.empty()) return InvalidArgument(fmt::format("keyword argument {}", key));
    return InvalidConfig(path, line).Says(Quoted(key));
  }
};

// A word out of a list. `other`: words of other generations, which get an answer of their own.
Status Choose(const Place& place, std::string_view word, Names allowed, Names other) {
  if (Contains(allowed, word)) return Status::Ok();
  Status error = place.Error()
                     .Expected(OneOf(allowed))
                     .Found(Contains(other, word)
                                ? fmt::format("{}, which this version does not do", Quoted(word))
                                : Excerpt(word));
  if (Contains(other, word)) return error;
  if (const std::string_view near = NearestSpelling(word, allowed); !near.empty()) {
    return std::move(error).Hint(fmt::format("did you mean {}?", Quoted(near)));
  }
  return error;
}

// One element of rank or step: "7" or "3-6".
Status AppendRange(const Place& place, std::string_view text, std::vector<int64_t>* out) {
  const size_t dash = text.find('-');
  const int64_t first = NumberAfter(text.substr(0, dash), "");
  const int64_t last =
      dash == std::string_view::npos ? first : NumberAfter(text.substr(dash + 1), "");
  if (first < 0 || last < first || last > kLargestStep) {
    return place.Error()
        .Expected("numbers from 0 to 1000000 such as 7, \"7\" or \"3-6\"")
        .Found(Excerpt(text));
  }
  for (int64_t i = first; i <= last; ++i) out->push_back(i);
  return Status::Ok();
}

void SortUnique(std::vector<int64_t>* numbers) {
  std::sort(numbers->begin(), numbers->end());
  numbers->erase(std::unique(numbers->begin(), numbers->end()), numbers->end());
}

Task TaskNamed(std::string_view word) {
  return word == "tensor" ? Task::kTensor : Task::kStatistics;
}
Level LevelNamed(std::string_view word) {
  return word == "L0" ? Level::kL0 : word == "mix" ? Level::kMix : Level::kL1;
}

class ConfigReader {
 public:
  ConfigReader(std::string_view path, const ConfigOverrides& overrides)
      : path_(path), overrides_(overrides) {}

  Result<Config> Read(const JsonValue& root) {
    if (root.kind != JsonValue::Kind::kObject) {
      return InvalidConfig(path_, root.line)
          .Expected("an object: {\"task\": \"statistics\", ...}")
          .Found(root.Describe());
    }
    for (const JsonMember& member : root.members) MSPROBE_RETURN_IF_ERROR(Top(member));
    MSPROBE_RETURN_IF_ERROR(Override());
    const std::string_view section_name = config_.task == Task::kTensor ? "tensor" : "statistics";
    if (const JsonValue* section = root.Find(section_name); section != nullptr) {
      for (const JsonMember& member : section->members)
        MSPROBE_RETURN_IF_ERROR(InSection(section_name, member));
    }
    return std::move(config_);
  }

 private:
  Place At(const JsonMember& member) const { return {path_, member.line, member.key}; }

  Status WrongType(const JsonMember& member, std::string_view expected) const {
    return At(member).Error().Expected(expected).Found(member.value.Describe());
  }

  Status Top(const JsonMember& member) {
    const std::string_view key = member.key;
    const JsonValue& value = member.value;
    if (Contains(kTasks, key) || Contains(kOtherTasks, key)) {
      if (value.kind != JsonValue::Kind::kObject && value.kind != JsonValue::Kind::kNull)
        return WrongType(member, "an object");
      return Status::Ok();  // the section of the task that is run is read later, the others belong
                            // to other runs
    }
    if (!Contains(kTopKeys, key)) return UnknownKey(member, kTopKeys, kOtherTopKeys, "");
    if (value.kind == JsonValue::Kind::kNull) return Status::Ok();  // as if left out
    if (key == "rank") return Numbers(member, &config_.rank);
    if (key == "step") return Numbers(member, &config_.step);
    if (key == "extra_info") {
      if (value.kind != JsonValue::Kind::kBool) return WrongType(member, "true or false");
      config_.extra_info = value.boolean;
      return Status::Ok();
    }
    if (value.kind != JsonValue::Kind::kString) return WrongType(member, "a string");
    return Word(At(member), value.text);
  }

  // task, level and dump_path, from the file or from a keyword argument.
  Status Word(const Place& place, const std::string& word) {
    if (place.key == "dump_path") {
      if (word.empty()) return place.Error().Expected("a folder").Found("an empty string");
      if (word.find('\0') != std::string::npos)
        return place.Error().Expected("a folder").Found(Excerpt(word));
      config_.dump_path = word;
      return Status::Ok();
    }
    // An argument wins over the file: what the file says then need not be possible here.
    const bool is_task = place.key == "task";
    if (!place.path.empty() && (is_task ? overrides_.task : overrides_.level).has_value())
      return Status::Ok();
    if (word.empty()) return Status::Ok();  // the default, as in earlier generations
    if (is_task) {
      MSPROBE_RETURN_IF_ERROR(Choose(place, word, kTasks, kOtherTasks));
      config_.task = TaskNamed(word);
    } else {
      MSPROBE_RETURN_IF_ERROR(Choose(place, word, kLevels, kOtherLevels));
      config_.level = LevelNamed(word);
    }
    return Status::Ok();
  }

  Status Override() {
    if (overrides_.task) MSPROBE_RETURN_IF_ERROR(Word({{}, 0, "task"}, *overrides_.task));
    if (overrides_.level) MSPROBE_RETURN_IF_ERROR(Word({{}, 0, "level"}, *overrides_.level));
    if (overrides_.dump_path)
      MSPROBE_RETURN_IF_ERROR(Word({{}, 0, "dump_path"}, *overrides_.dump_path));
    if (overrides_.step) {
      config_.step.clear();
      for (const std::string& item : *overrides_.step) {
        MSPROBE_RETURN_IF_ERROR(AppendRange({{}, 0, "step"}, item, &config_.step));
      }
      SortUnique(&config_.step);
    }
    return Status::Ok();
  }

  Status Numbers(const JsonMember& member, std::vector<int64_t>* out) {
    if (member.value.kind != JsonValue::Kind::kArray)
      return WrongType(member, "a list such as [0, \"3-6\"]");
    for (const JsonValue& item : member.value.items) {
      const Place place{path_, item.line, member.key};
      if (item.kind != JsonValue::Kind::kNumber && item.kind != JsonValue::Kind::kString) {
        return place.Error()
            .Expected("numbers from 0 to 1000000 such as 7, \"7\" or \"3-6\"")
            .Found(item.Describe());
      }
      MSPROBE_RETURN_IF_ERROR(AppendRange(place, item.text, out));
      if (out->size() > 4 * kLargestStep) SortUnique(out);  // many overlapping ranges: stay small
    }
    SortUnique(out);
    return Status::Ok();
  }

  Status Strings(const JsonMember& member, std::vector<std::string>* out) {
    if (member.value.kind != JsonValue::Kind::kArray) return WrongType(member, "a list of strings");
    for (const JsonValue& item : member.value.items) {
      if (item.kind != JsonValue::Kind::kString || item.text.empty()) {
        return Place{path_, item.line, member.key}
            .Error()
            .Expected("a string that is not empty")
            .Found(item.Describe());
      }
      out->push_back(item.text);
    }
    return Status::Ok();
  }

  Status InSection(std::string_view section, const JsonMember& member) {
    if (!Contains(kTaskKeys, member.key))
      return UnknownKey(member, kTaskKeys, kOtherTaskKeys, section);
    if (member.value.kind == JsonValue::Kind::kNull) return Status::Ok();
    if (member.key == "scope") return Scope(member);
    if (member.key == "list") return Strings(member, &config_.list);
    if (member.key == "data_mode") return DataMode(member);
    if (member.key == "tensor_list") {
      MSPROBE_RETURN_IF_ERROR(Strings(member, &config_.tensor_list));
      if (config_.task == Task::kTensor && !config_.tensor_list.empty()) {
        return At(member)
            .Error()
            .Says("\"tensor_list\" belongs to task statistics: task tensor saves every tensor")
            .Hint("use \"list\" to record fewer entries");
      }
      return Status::Ok();
    }
    if (member.value.kind != JsonValue::Kind::kString)
      return WrongType(member, OneOf(kSummaryModes));
    if (member.value.text.empty()) return Status::Ok();
    MSPROBE_RETURN_IF_ERROR(
        Choose(At(member), member.value.text, kSummaryModes, kOtherSummaryModes));
    config_.summary_mode =
        member.value.text == "md5" ? SummaryMode::kMd5 : SummaryMode::kStatistics;
    return Status::Ok();
  }

  Status Scope(const JsonMember& member) {
    MSPROBE_RETURN_IF_ERROR(Strings(member, &config_.scope));
    std::vector<std::string>& scope = config_.scope;
    if (scope.empty()) return Status::Ok();
    if (scope.size() == 1) scope.push_back(scope[0]);  // as msprobe 1.0 did
    if (scope.size() != 2) {
      return At(member)
          .Error()
          .Expected("two entry names, the first and the last")
          .Found(fmt::format("{}", scope.size()));
    }
    for (const std::string& name : scope) {
      const EntryName parsed = ParseEntryName(name);
      const bool known = parsed.call >= 0 && (parsed.direction == Direction::kForward ||
                                              parsed.direction == Direction::kBackward);
      const bool fits =
          parsed.is_module ? config_.level != Level::kL1 : config_.level != Level::kL0;
      if (known && fits) continue;
      constexpr std::string_view kApi = "an API call such as \"Functional.relu.0.forward\"";
      constexpr std::string_view kModule = "a module call such as \"Module.fc.Linear.forward.0\"";
      return At(member)
          .Error()
          .Expected(config_.level == Level::kL0   ? fmt::format("{} (level L0)", kModule)
                    : config_.level == Level::kL1 ? fmt::format("{} (level L1)", kApi)
                                                  : fmt::format("{} or {}", kApi, kModule))
          .Found(Excerpt(name, 80));
    }
    return Status::Ok();
  }

  Status DataMode(const JsonMember& member) {
    std::vector<std::string> words;
    MSPROBE_RETURN_IF_ERROR(Strings(member, &words));
    for (const std::string& word : words)
      MSPROBE_RETURN_IF_ERROR(Choose(At(member), word, kDataModes, {}));
    const auto has = [&](std::string_view word) {
      return std::find(words.begin(), words.end(), word) != words.end();
    };
    if (has("all") && words.size() > 1) {
      return At(member)
          .Error()
          .Expected("\"all\" alone, or other words without it")
          .Found(fmt::format("{} words", words.size()));
    }
    // A dimension that is not mentioned is not restricted.
    if (has("forward") != has("backward"))
      (has("forward") ? config_.backward : config_.forward) = false;
    if (has("input") != has("output")) (has("input") ? config_.output : config_.input) = false;
    return Status::Ok();
  }

  Status UnknownKey(const JsonMember& member, Names allowed, std::span<const OtherKey> others,
                    std::string_view section) {
    for (const OtherKey& other : others) {
      if (other.key != member.key) continue;
      const std::string value = JsonOf(member.value);
      const std::vector<std::string_view> harmless = Split(other.harmless, ' ');
      if (member.value.kind == JsonValue::Kind::kNull || Contains(harmless, value)) {
        config_.warnings.push_back(fmt::format("{}:{}: \"{}\" has no effect: {}", path_,
                                               member.line, member.key, other.why));
        return Status::Ok();
      }
      return InvalidConfig(path_, member.line)
          .Says(fmt::format("\"{}\": {} is not possible in this version", member.key,
                            member.value.Describe()))
          .Hint(fmt::format("remove the key; {}", other.why));
    }
    Status error = InvalidConfig(path_, member.line)
                       .Says(section.empty() ? fmt::format("unknown key {}", Excerpt(member.key))
                                             : fmt::format("unknown key {} in \"{}\"",
                                                           Excerpt(member.key), section))
                       .Expected(OneOf(allowed));
    std::vector<std::string_view> candidates(allowed.begin(), allowed.end());
    if (section.empty()) candidates.insert(candidates.end(), std::begin(kTasks), std::end(kTasks));
    for (const OtherKey& other : others) candidates.push_back(other.key);
    const std::string_view near = NearestSpelling(member.key, candidates);
    if (!near.empty()) return std::move(error).Hint(fmt::format("did you mean {}?", Quoted(near)));
    if (section.empty() && Contains(kTaskKeys, member.key)) {
      return std::move(error).Hint(
          fmt::format("{0} belongs into the section of the task: \"statistics\": {{{0}: ...}}",
                      Quoted(member.key)));
    }
    return error;
  }

  std::string_view path_;
  const ConfigOverrides& overrides_;
  Config config_;
};

}  // namespace

Result<Config> ParseConfig(std::string_view text, std::string_view path,
                           const ConfigOverrides& overrides) {
  if (text.size() > kLargestConfig) {
    return InvalidConfig(path)
        .Expected("a configuration file of at most 1 MiB")
        .Found(fmt::format("{} bytes", text.size()));
  }
  MSPROBE_ASSIGN_OR_RETURN(const JsonValue root, ParseJson(text, path));
  return ConfigReader(path, overrides).Read(root);
}

Result<Config> LoadConfig(const std::string& path, const ConfigOverrides& overrides) {
  if (path.empty()) return ParseConfig("{}", "", overrides);
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  return ParseConfig(file.bytes(), path, overrides);
}

}  // namespace msprobe
