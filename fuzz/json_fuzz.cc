// The two JSON readers agree: if ParseJson accepts a text, JsonCursor reads it as one value. Every
// string that the cursor returns can be decoded.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "engine/formats/text/json.h"
#include "fuzz/target.h"

namespace {

// Reads all values inside the next value; returns their number.
size_t Walk(msprobe::formats::JsonCursor* json) {
  size_t values = 1;
  msprobe::formats::JsonText text;
  std::string_view number;
  bool flag = false;
  switch (json->Peek()) {
    case '{':
      for (json->BeginObject(); json->NextKey(&text);) {
        std::string key;
        msprobe::formats::AppendJsonText(&key, text);
        values += Walk(json);
      }
      break;
    case '[':
      for (json->BeginArray(); json->NextItem();) values += Walk(json);
      break;
    case '"': {
      std::string decoded;
      if (json->String(&text)) msprobe::formats::AppendJsonText(&decoded, text);
      if (!text.escaped && !json->failed() && decoded != text.raw) std::abort();
      break;
    }
    case 't':
    case 'f':
      json->Bool(&flag);
      break;
    case 'n':
      json->Null();
      break;
    default:
      if (json->Number(&number)) msprobe::formats::JsonNumber(number);
  }
  return values;
}

size_t Count(const msprobe::formats::JsonValue& value) {
  size_t values = 1;
  for (const msprobe::formats::JsonValue& item : value.items) values += Count(item);
  for (const msprobe::formats::JsonMember& member : value.members) values += Count(member.value);
  return values;
}

}  // namespace

FUZZ_TARGET(json) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  msprobe::formats::JsonCursor skipping(text), walking(text);
  const bool skipped = skipping.Skip();
  const size_t values = Walk(&walking);
  if (skipped == walking.failed()) std::abort();
  if (!skipped && (walking.offset() > size || skipping.offset() > size)) std::abort();
  if (!skipped && skipping.Error("a.json").message().find("a.json") == std::string::npos)
    std::abort();
  const auto tree = msprobe::formats::ParseJson(text, "a.json");
  if (tree.ok() && (!skipped || Count(*tree) != values)) std::abort();
  if (!tree.ok() && tree.status().code() != msprobe::ErrorCode::kInvalidConfig) std::abort();
  return 0;
}
