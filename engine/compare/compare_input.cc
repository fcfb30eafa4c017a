#include "engine/compare/compare_input.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/dump/config/config_values.h"
#include "engine/formats/text/json.h"

namespace msprobe::compare {
namespace {

constexpr std::array<std::string_view, 11> kKeys = {
    "npu_path",        "bench_path",           "stack_path", "npu_json_path", "bench_json_path",
    "stack_json_path", "is_print_compare_log", "rank_id",    "step_id",       "common",
    "map_dict"};

Status WrongType(std::string_view path, const formats::JsonMember& member,
                 const Message& expected) {
  return InvalidConfig(path, member.line)
      .Expected("{} after \"{}\""_t(expected, member.key))
      .Found(member.value.Describe());
}

Status OtherKey(std::string_view path, const formats::JsonMember& member) {
  const std::string_view nearest = NearestSpelling(member.key, kKeys);
  Status status = InvalidConfig(path, member.line)
                      .Expected("npu_path, bench_path, stack_path or is_print_compare_log"_t)
                      .Found(Excerpt(member.key));
  return nearest.empty() ? status : std::move(status).Hint("did you mean {}?"_t(nearest));
}

// Reads a list of ranks or steps: [0, 1].
Status ReadIds(std::string_view path, const formats::JsonMember& member,
               std::vector<int64_t>* ids) {
  const auto wrong = [&] { return WrongType(path, member, "a list of numbers such as [0, 1]"_t); };
  if (member.value.kind != formats::JsonValue::Kind::kArray || member.value.items.empty())
    return wrong();
  for (const formats::JsonValue& item : member.value.items) {
    if (item.kind != formats::JsonValue::Kind::kNumber || !dump::AppendNumberRange(item.text, ids))
      return wrong();
  }
  return Status::Ok();
}

Status ReadNames(std::string_view path, const formats::JsonMember& member, CompareInput* input) {
  const auto wrong = [&] {
    return WrongType(path, member, "pairs such as {{\"input\": \"x\"}}"_t);
  };
  if (member.value.kind != formats::JsonValue::Kind::kObject) return wrong();
  for (const formats::JsonMember& pair : member.value.members) {
    const bool named =
        pair.value.kind == formats::JsonValue::Kind::kString && !pair.value.text.empty();
    if (!named || pair.key.empty()) return wrong();
    input->renamed.emplace_back(pair.key, pair.value.text);
  }
  return Status::Ok();
}

Status CheckStack(std::string_view path, const CompareInput& input,
                  const formats::JsonMember& stack) {
  if (!Exists(stack.value.text)) {
    return NotFound(stack.value.text)
        .Expected("the stack.json that {} names"_t(path))
        .Hint("leave stack_path out: the file beside npu_path is read"_t);
  }
  const std::string folder = IsDirectory(input.target) ? input.target : DirectoryName(input.target);
  std::error_code error;
  if (IsDirectory(stack.value.text) ||
      std::filesystem::equivalent(DirectoryName(stack.value.text), folder, error)) {
    return Status::Ok();
  }
  return InvalidConfig(path, stack.line)
      .Expected("the stack.json beside npu_path"_t)
      .Found(stack.value.text)
      .Hint("leave stack_path out, or copy the file to where npu_path is"_t);
}

// A key that names the dump of one side; the older names of the keys are read, too.
bool NamesASide(std::string_view key) {
  return key == "npu_path" || key == "npu_json_path" || key == "bench_path" ||
         key == "bench_json_path";
}

Status ReadSide(std::string_view path, const formats::JsonMember& member, CompareInput* input) {
  const std::string_view key = member.key;
  const bool text = member.value.kind == formats::JsonValue::Kind::kString;
  if (!text || member.value.text.empty()) return WrongType(path, member, "a path"_t);
  std::string& side = key.starts_with("npu") ? input->target : input->golden;
  if (!side.empty()) {
    return InvalidConfig(path, member.line).Says("\"{}\" repeats a key above"_t(key));
  }
  side = member.value.text;
  return Status::Ok();
}

// Sets `*value` if it is given; else the key is only checked.
Status ReadBool(std::string_view path, const formats::JsonMember& member, bool* value) {
  if (member.value.kind != formats::JsonValue::Kind::kBool) {
    return WrongType(path, member, "true or false"_t);
  }
  if (value != nullptr) *value = member.value.boolean;
  return Status::Ok();
}

// `*stack`: the member that names the file of stacks, which is checked when both sides are known.
Status ReadMember(std::string_view path, const formats::JsonMember& member, InputUse use,
                  CompareInput* input, const formats::JsonMember** stack) {
  const std::string_view key = member.key;
  if (NamesASide(key)) return ReadSide(path, member, input);
  if (key == "stack_path" || key == "stack_json_path") {
    if (member.value.kind != formats::JsonValue::Kind::kString)
      return WrongType(path, member, "a path"_t);
    if (!member.value.text.empty()) *stack = &member;
    return Status::Ok();
  }
  if (key == "is_print_compare_log") return ReadBool(path, member, &input->print_log);
  if (key == "rank_id") return ReadIds(path, member, &input->ranks);
  if (key == "step_id") return ReadIds(path, member, &input->steps);
  if (key == "map_dict") return ReadNames(path, member, input);
  if (key == "common") return ReadBool(path, member, nullptr);
  if (key == "parallel_merge" && use == InputUse::kGraph) {
    return InvalidConfig(path, member.line)
        .Says("parallel_merge: the shares of tensor- and pipeline-parallel ranks are not merged"_t)
        .Hint("leave the key out to compare rank by rank; both runs then need the same layout"_t);
  }
  return OtherKey(path, member);
}

Status MissingSide(std::string_view path, Message expected) {
  return InvalidConfig(path).Expected(std::move(expected)).Found("no such key"_t);
}

}  // namespace

Result<CompareInput> ParseCompareInput(std::string_view json, std::string_view path, InputUse use) {
  MSPROBE_ASSIGN_OR_RETURN(const formats::JsonValue root, formats::ParseJson(json, path));
  if (root.kind != formats::JsonValue::Kind::kObject) {
    return InvalidConfig(path, root.line)
        .Expected(std::string("{\"npu_path\": ..., \"bench_path\": ...}"))
        .Found(root.Describe());
  }
  CompareInput input;
  const formats::JsonMember* stack = nullptr;
  for (const formats::JsonMember& member : root.members) {
    MSPROBE_RETURN_IF_ERROR(ReadMember(path, member, use, &input, &stack));
  }
  if (input.target.empty()) return MissingSide(path, "\"npu_path\", the run under test"_t);
  if (input.golden.empty() && use != InputUse::kGraph) {
    return MissingSide(path, "\"bench_path\", the trusted run"_t);
  }
  if (stack != nullptr) {
    MSPROBE_RETURN_IF_ERROR(CheckStack(path, input, *stack));
    input.has_stack = true;
  }
  return input;
}

Result<CompareInput> ReadCompareInput(const std::string& path, InputUse use) {
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  return ParseCompareInput(file.bytes(), path, use);
}

}  // namespace msprobe::compare
