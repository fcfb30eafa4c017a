#include "engine/dump/config/config_keys.h"

#include <fmt/format.h>

#include <iterator>
#include <span>

#include "engine/base/text.h"

namespace msprobe::dump {
namespace {

// A key of an older generation that this version does not have. `harmless` lists the values (as
// JSON, with blanks between them) that change nothing.
struct OtherKey {
  std::string_view key, harmless, why;
};
constexpr std::string_view kAnyValue = "*";
constexpr OtherKey kOtherTopKeys[] = {
    {"acl_config", kAnyValue, "kernels of NPU devices are recorded by the vendor's tool"},
};
constexpr OtherKey kOtherTaskKeys[] = {
    {"backward_input", kAnyValue, "kernels of NPU devices are recorded by the vendor's tool"},
    {"file_format", "\"\" \"npy\" \"bin\" \"pt\"",
     "tensors are written in the framework's own format"},
    {"online_run_ut", "false", "dump to files and check them afterwards"},
    {"nfs_path", "\"\"", "dump to files and check them afterwards"},
    {"host", "\"\"", "dump to files and check them afterwards"},
    {"port", "-1", "dump to files and check them afterwards"},
    {"tls_path", "\"\" \"./\"", "dump to files and check them afterwards"},
};

// A small value as JSON, to look it up in OtherKey::harmless.
std::string JsonOf(const formats::JsonValue& value) {
  if (value.kind == formats::JsonValue::Kind::kString) return Quoted(value.text);
  if (value.kind != formats::JsonValue::Kind::kArray) return value.Describe();
  std::string text = "[";
  for (const formats::JsonValue& item : value.items)
    text += (text.size() > 1 ? "," : "") + JsonOf(item);
  return text + "]";
}

}  // namespace

Status UnknownKey(std::string_view path, std::string_view section,
                  const formats::JsonMember& member, std::vector<std::string>* warnings) {
  const Names allowed = section.empty() ? Names(kTopKeys) : Names(kTaskKeys);
  const std::span<const OtherKey> others =
      section.empty() ? std::span<const OtherKey>(kOtherTopKeys) : kOtherTaskKeys;
  for (const OtherKey& other : others) {
    if (other.key != member.key) continue;
    const std::string value = JsonOf(member.value);
    const std::vector<std::string_view> harmless = Split(other.harmless, ' ');
    if (other.harmless == kAnyValue || member.value.kind == formats::JsonValue::Kind::kNull ||
        Contains(harmless, value)) {
      warnings->push_back(
          fmt::format("{}:{}: \"{}\" has no effect: {}", path, member.line, member.key, other.why));
      return Status::Ok();
    }
    return InvalidConfig(path, member.line)
        .Says(fmt::format("\"{}\": {} is not possible in this version", member.key,
                          member.value.Describe()))
        .Hint(fmt::format("remove the key; {}", other.why));
  }
  Status error = InvalidConfig(path, member.line)
                     .Says(section.empty() ? fmt::format("unknown key {}", Excerpt(member.key))
                                           : fmt::format("unknown key {} in \"{}\"",
                                                         Excerpt(member.key), section))
                     .Expected(OneOf(allowed));
  if (section.empty() && Contains(kTaskKeys, member.key)) {
    return std::move(error).Hint(
        fmt::format("{0} belongs in the section of the task: \"statistics\": {{{0}: ...}}",
                    Quoted(member.key)));
  }
  if (!section.empty() && Contains(kTopKeys, member.key)) {
    return std::move(error).Hint(
        fmt::format("{0} belongs beside \"{1}\", not inside: {0}: ..., \"{1}\": {{...}}",
                    Quoted(member.key), section));
  }
  std::vector<std::string_view> candidates(allowed.begin(), allowed.end());
  if (section.empty()) candidates.insert(candidates.end(), std::begin(kTasks), std::end(kTasks));
  for (const OtherKey& other : others) candidates.push_back(other.key);
  const std::string_view near = NearestSpelling(member.key, candidates);
  if (!near.empty()) return std::move(error).Hint(fmt::format("did you mean {}?", Quoted(near)));
  return error;
}

}  // namespace msprobe::dump
