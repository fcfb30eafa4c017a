// A small document as a tree.
#include <fmt/format.h>

#include <algorithm>

#include "engine/base/messages/message.h"
#include "engine/formats/text/json.h"

namespace msprobe::formats {
namespace {

class TreeBuilder {
 public:
  TreeBuilder(std::string_view text, std::string_view path)
      : text_(text), path_(path), json_(text) {}

  Result<JsonValue> Build() {
    JsonValue root;
    Status status = Value(&root);
    if (!status.ok()) return status;
    if (json_.failed()) return SyntaxError();
    if (json_.Peek() != '\0' || json_.offset() < text_.size()) {
      return InvalidConfig(path_, LineNow())
          .Expected("nothing after the document"_t)
          .Found(Excerpt(text_.substr(json_.offset()), 16));
    }
    return root;
  }

 private:
  // Without the byte offset of the cursor's error: people count lines in a file they edit.
  Status SyntaxError() {
    return InvalidConfig(path_, LineNow()).Expected(json_.expected()).Found(json_.found());
  }

  // Offsets only grow, so the newlines before each are counted once.
  uint64_t LineNow() {
    const size_t to = std::min(json_.offset(), text_.size());
    line_ += static_cast<uint64_t>(std::count(text_.begin() + static_cast<ptrdiff_t>(counted_),
                                              text_.begin() + static_cast<ptrdiff_t>(to), '\n'));
    counted_ = std::max(counted_, to);
    return line_;
  }

  Status Value(JsonValue* value) {
    const char c = json_.Peek();
    value->line = LineNow();
    JsonText text;
    std::string_view number;
    switch (c) {
      case '{':
        value->kind = JsonValue::Kind::kObject;
        for (json_.BeginObject(); json_.NextKey(&text);) {
          JsonMember member;
          AppendJsonText(&member.key, text);
          member.line = LineNow();
          if (value->Find(member.key) != nullptr) {
            return InvalidConfig(path_, member.line)
                .Says("key {} appears twice"_t(Excerpt(member.key)));
          }
          MSPROBE_RETURN_IF_ERROR(Value(&member.value));
          value->members.push_back(std::move(member));
        }
        return Status::Ok();
      case '[':
        value->kind = JsonValue::Kind::kArray;
        for (json_.BeginArray(); json_.NextItem();) {
          MSPROBE_RETURN_IF_ERROR(Value(&value->items.emplace_back()));
        }
        return Status::Ok();
      case '"':
        value->kind = JsonValue::Kind::kString;
        if (json_.String(&text)) AppendJsonText(&value->text, text);
        return Status::Ok();
      case 't':
      case 'f':
        value->kind = JsonValue::Kind::kBool;
        json_.Bool(&value->boolean);
        return Status::Ok();
      case 'n':
        json_.Null();
        return Status::Ok();
      default:
        value->kind = JsonValue::Kind::kNumber;
        if (!json_.failed() && json_.Raw(&number)) value->text = number;
        return Status::Ok();
    }
  }

  std::string_view text_, path_;
  JsonCursor json_;
  uint64_t line_ = 1;
  size_t counted_ = 0;
};

}  // namespace

const JsonValue* JsonValue::Find(std::string_view key) const {
  for (const JsonMember& member : members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

const JsonValue& JsonValue::Member(std::string_view key) const {
  static const JsonValue kNull;
  const JsonValue* found = Find(key);
  return found != nullptr ? *found : kNull;
}

Message JsonValue::Describe() const {
  switch (kind) {
    case Kind::kNull:
      return std::string("null");
    case Kind::kBool:
      return std::string(boolean ? "true" : "false");
    case Kind::kNumber:
      return text;
    case Kind::kString:
      return Excerpt(text);
    case Kind::kArray:
      return "a list"_t;
    case Kind::kObject:
      return "an object"_t;
  }
  return {};
}

Result<JsonValue> ParseJson(std::string_view text, std::string_view path) {
  return TreeBuilder(text, path).Build();
}

}  // namespace msprobe::formats
