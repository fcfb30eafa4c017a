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
  std::string_view key, harmless;
  Message why;
};
constexpr std::string_view kAnyValue = "*";

std::span<const OtherKey> OtherTopKeys() {
  static const OtherKey kKeys[] = {
      {"acl_config", kAnyValue, "kernels of NPU devices are recorded by the vendor's tool"_t},
  };
  return kKeys;
}

std::span<const OtherKey> OtherTaskKeys() {
  static const Message kCheckLater = "dump to files and check them afterwards"_t;
  static const OtherKey kKeys[] = {
      {"backward_input", kAnyValue, "kernels of NPU devices are recorded by the vendor's tool"_t},
      {"file_format", "\"\" \"npy\" \"bin\" \"pt\"",
       "tensors are written in the framework's own format"_t},
      {"online_run_ut", "false", kCheckLater},
      {"nfs_path", "\"\"", kCheckLater},
      {"host", "\"\"", kCheckLater},
      {"port", "-1", kCheckLater},
      {"tls_path", "\"\" \"./\"", kCheckLater},
  };
  return kKeys;
}

// A small value as JSON, to look it up in OtherKey::harmless.
std::string JsonOf(const formats::JsonValue& value) {
  if (value.kind == formats::JsonValue::Kind::kString) return Quoted(value.text);
  if (value.kind != formats::JsonValue::Kind::kArray) return value.Describe().English();
  std::string text = "[";
  for (const formats::JsonValue& item : value.items)
    text += (text.size() > 1 ? "," : "") + JsonOf(item);
  return text + "]";
}

}  // namespace

std::span<const OtherWord> OtherTasks() {
  static const Message kCheckInstead =
      "use \"tensor\" here and in a run that is trusted, then: msprobe compare -tp DIR -gp DIR"_t;
  static const OtherWord kTasksOfOthers[] = {
      {"acc_check", kCheckInstead},
      {"diff_check", kCheckInstead},
      {"exception_dump",
       "use \"statistics\": an entry is in the file as soon as its call returns, a crash loses "
       "none"_t},
      {"run_ut", kCheckInstead}};
  return kTasksOfOthers;
}

Status UnknownKey(std::string_view path, std::string_view section,
                  const formats::JsonMember& member, std::vector<Message>* warnings) {
  const Names allowed = section.empty() ? Names(kTopKeys) : Names(kTaskKeys);
  const std::span<const OtherKey> others = section.empty() ? OtherTopKeys() : OtherTaskKeys();
  for (const OtherKey& other : others) {
    if (other.key != member.key) continue;
    const std::string value = JsonOf(member.value);
    const std::vector<std::string_view> harmless = Split(other.harmless, ' ');
    if (other.harmless == kAnyValue || member.value.kind == formats::JsonValue::Kind::kNull ||
        Contains(harmless, value)) {
      warnings->push_back(
          "{}:{}: \"{}\" has no effect: {}"_t(path, member.line, member.key, other.why));
      return Status::Ok();
    }
    return InvalidConfig(path, member.line)
        .Says("\"{}\": {} is not possible in this version"_t(member.key, member.value.Describe()))
        .Hint("remove the key; {}"_t(other.why));
  }
  Status error =
      InvalidConfig(path, member.line)
          .Says(section.empty() ? "unknown key {}"_t(Excerpt(member.key))
                                : "unknown key {} in \"{}\""_t(Excerpt(member.key), section))
          .Expected(OneOf(allowed));
  if (section.empty() && Contains(kTaskKeys, member.key)) {
    return std::move(error).Hint(
        "{} belongs in the section of the task: \"statistics\": {{{}: ...}}"_t(Quoted(member.key),
                                                                               Quoted(member.key)));
  }
  if (!section.empty() && Contains(kTopKeys, member.key)) {
    return std::move(error).Hint("{} belongs beside \"{}\", not inside: {}: ..., \"{}\": {{...}}"_t(
        Quoted(member.key), section, Quoted(member.key), section));
  }
  std::vector<std::string_view> candidates(allowed.begin(), allowed.end());
  if (section.empty()) candidates.insert(candidates.end(), std::begin(kTasks), std::end(kTasks));
  for (const OtherKey& other : others) candidates.push_back(other.key);
  const std::string_view near = NearestSpelling(member.key, candidates);
  if (!near.empty()) return std::move(error).Hint("did you mean {}?"_t(Quoted(near)));
  return error;
}

}  // namespace msprobe::dump
