#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/exports/databases/trend_sources.h"
#include "engine/formats/text/json.h"

namespace msprobe::exports {

Result<std::vector<std::pair<std::string, std::string>>> ReadReplacements(const std::string& path) {
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  MSPROBE_ASSIGN_OR_RETURN(const formats::JsonValue root, formats::ParseJson(file.bytes(), path));
  if (root.kind != formats::JsonValue::Kind::kObject) {
    return InvalidConfig(path, root.line)
        .Expected("texts and their replacements: {{\".TE\": \".\"}}"_t)
        .Found(root.Describe());
  }
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const formats::JsonMember& member : root.members) {
    if (member.value.kind != formats::JsonValue::Kind::kString || member.key.empty()) {
      return InvalidConfig(path, member.line)
          .Expected("a text and its replacement: \".TE\": \".\""_t)
          .Found(member.key.empty() ? "an empty text"_t : member.value.Describe());
    }
    pairs.emplace_back(member.key, member.value.text);
  }
  return pairs;
}

}  // namespace msprobe::exports
