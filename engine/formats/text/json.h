// JSON as dumps and configuration files use it: strict JSON plus the bare NaN, Infinity and
// -Infinity of Python's json.dumps. There are two readers: a cursor, which walks a large text and
// allocates nothing, and a small tree with line numbers, for configurations.
//
//   JsonCursor json(text);
//   JsonText key;
//   for (json.BeginObject(); json.NextKey(&key);) json.Skip();
//   if (json.failed()) return json.Error(path);   // "a.json:7: expected ',' or '}', found \"x\""
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::formats {

// The text between the quotes of a string, not decoded. The cursor has checked its escapes, so that
// decoding cannot fail.
struct JsonText {
  std::string_view raw;
  bool escaped = false;  // raw holds backslashes; use AppendJsonText

  bool operator==(std::string_view text) const { return !escaped && raw == text; }
};

// Appends the characters a JSON string stands for, in UTF-8; half a surrogate pair becomes U+FFFD.
void AppendJsonText(std::string* out, JsonText text);

// Walks a JSON text from left to right. After the first error every call returns false, so that a
// caller tests failed() once, after its loops. Containers may be nested kMaxDepth deep. Bytes above
// 0x7f in strings are not checked.
class JsonCursor {
 public:
  static constexpr int kMaxDepth = 512;

  explicit JsonCursor(std::string_view text, size_t offset = 0)
      : begin_(text.data()),
        p_(text.data() + offset),
        end_(text.data() + text.size()),
        text_end_(end_) {}

  // First character of the next value or punctuation; '\0' at the end of the text.
  char Peek() {
    SkipSpace();
    return p_ < end_ ? *p_ : '\0';
  }

  bool BeginObject();  // consumes '{'
  bool NextKey(
      JsonText* key);  // the next key and its ':'; false after consuming '}', or on an error
  bool BeginArray();   // consumes '['
  bool NextItem();     // true: a value follows; false after consuming ']', or on an error
  // As NextKey, for a sequence of "key": value pairs without braces around it. False before '}'
  // (which is not consumed), at the end of the text (also after a last ','), or on an error.
  bool NextKeyOrEnd(JsonText* key);

  bool String(JsonText* text);
  bool Number(std::string_view* text);  // NaN and infinities included
  bool Bool(bool* value);
  bool Null();
  bool Skip();                       // any value, checked as it passes
  bool Raw(std::string_view* text);  // any value, as it stands in the text

  bool failed() const { return expected_.has_value(); }
  bool truncated() const { return truncated_; }  // failed because the text ended too early
  size_t offset() const { return static_cast<size_t>(p_ - begin_); }  // of the error, once failed
  size_t remaining() const { return static_cast<size_t>(end_ - p_); }
  // kInvalidDump with path, offset, expected and found.
  Status Error(std::string_view path) const;
  Message expected() const { return expected_.value_or(Message()); }  // of the error, once failed
  Message found() const;
  // Reports an error that the caller has found (a wrong type, an unsafe name) as the cursor's
  // error.
  bool Fail(Message expected) { return FailAt(p_, std::move(expected), false); }
  // Moves back to just after the '{' of an object, while the value of one of its members comes
  // next: the members are read once more.
  void ReopenObject(size_t offset_after_brace) {
    if (failed()) return;
    p_ = begin_ + offset_after_brace;
    fresh_ = true;
  }
  // Skips `value`, the text of a string, list or object that was read before, if the same text
  // comes next; otherwise does nothing.
  bool PassKnown(std::string_view value) {
    if (value.empty() || remaining() < value.size() ||
        std::memcmp(p_, value.data(), value.size()) != 0 || failed()) {
      return false;
    }
    p_ += value.size();
    return !(fresh_ = false);
  }
  // The text between `offset` and the present position.
  std::string_view Since(size_t offset) const {
    return {begin_ + offset, static_cast<size_t>(p_ - begin_) - offset};
  }

 private:
  void SkipSpace() {
    // Most often there is nothing, or the one blank after a comma or colon.
    if (end_ > p_ && *p_ > ' ') return;
    if (end_ - p_ > 1 && *p_ == ' ' && p_[1] > ' ') {
      ++p_;
      return;
    }
    SkipManySpaces();
  }
  void SkipManySpaces();
  bool FailAt(const char* where, Message expected, bool truncated);
  bool FailHere(Message expected) { return FailAt(p_, std::move(expected), p_ >= end_); }
  bool FailAtWord(std::string_view word, Message expected);
  bool Word(std::string_view word);  // consumes it; false, and no error: something else is there
  bool KeyAndColon(JsonText* key);
  bool Escape();

  const char* begin_;
  const char* p_;
  const char* end_;  // moved to the place of the error after an error
  const char* text_end_;
  std::optional<Message> expected_;
  bool truncated_ = false;
  bool fresh_ = true;  // the last thing consumed was '{' or '[': no comma before the next element
  int depth_ = 0;
};

// A number as double: what Python's float() gives, with NaN, Infinity and -Infinity. NaN for text
// that is not a number.
double JsonNumber(std::string_view text);

struct JsonMember;

// A small document as a tree, for configuration files.
struct JsonValue {
  enum class Kind : uint8_t { kNull, kBool, kNumber, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  bool boolean = false;
  std::string text;                 // of a string, decoded; of a number, as spelled
  std::vector<JsonValue> items;     // of an array
  std::vector<JsonMember> members;  // of an object, in file order
  uint64_t line = 0;                // from 1

  const JsonValue* Find(
      std::string_view key) const;  // nullptr when this is not an object or has no such key
  const JsonValue& Member(std::string_view key) const;  // the same; null, where there is none
  // "a string", "a list", "true", "3": for the found part of a message.
  Message Describe() const;
};

struct JsonMember {
  std::string key;
  uint64_t line = 0;
  JsonValue value;
};

// Errors: kInvalidConfig with path and *line* for a syntax error, a key that appears twice, or text
// after the document.
Result<JsonValue> ParseJson(std::string_view text, std::string_view path);

}  // namespace msprobe::formats
