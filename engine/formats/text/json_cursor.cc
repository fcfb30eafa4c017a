// The walk over a JSON text.
#include <bit>
#include <cstring>

#include "engine/base/messages/message.h"
#include "engine/formats/text/json.h"

namespace msprobe::formats {
namespace {

constexpr uint64_t kOnes = 0x0101010101010101u;
constexpr uint64_t kHighs = 0x8080808080808080u;

uint64_t Load8(const char* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

// Marks the high bit of bytes that end a plain run inside a string: quote, backslash, control
// characters. Only the lowest mark is exact, which is the one used.
uint64_t StringStops(uint64_t word) {
  const uint64_t quote = word ^ (kOnes * '"');
  const uint64_t backslash = word ^ (kOnes * '\\');
  const uint64_t control = (word - kOnes * 0x20) & ~word;
  return (((quote - kOnes) & ~quote) | ((backslash - kOnes) & ~backslash) | control) & kHighs;
}

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsHexDigit(char c) { return IsDigit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); }

}  // namespace

void JsonCursor::SkipManySpaces() {
  const char* p = p_;
  if constexpr (std::endian::native == std::endian::little) {
    // Indented files: a newline and then a run of blanks.
    while (p < end_ && IsSpace(*p)) {
      ++p;
      while (end_ - p >= 8) {
        const uint64_t other = Load8(p) ^ (kOnes * ' ');
        if (other != 0) {
          p += std::countr_zero(other) / 8;
          break;
        }
        p += 8;
      }
    }
  } else {
    while (p < end_ && IsSpace(*p)) ++p;
  }
  p_ = p;
}

bool JsonCursor::FailAt(const char* where, Message expected, bool truncated) {
  if (!expected_) {
    p_ = where;
    expected_ = std::move(expected);
    truncated_ = truncated;
    // Every later call sees the end of the text, whatever it looks for.
    end_ = where;
  }
  return false;
}

bool JsonCursor::BeginObject() {
  if (Peek() != '{' || failed()) return FailHere("'{{'"_t);
  if (++depth_ > kMaxDepth) return FailAt(p_, "no more than 512 levels of nesting"_t, false);
  ++p_;
  return fresh_ = true;
}

bool JsonCursor::BeginArray() {
  if (Peek() != '[' || failed()) return FailHere("'['"_t);
  if (++depth_ > kMaxDepth) return FailAt(p_, "no more than 512 levels of nesting"_t, false);
  ++p_;
  return fresh_ = true;
}

bool JsonCursor::KeyAndColon(JsonText* key) {
  fresh_ = false;
  if (Peek() != '"') return FailHere("'\"' before a key"_t);
  if (!String(key)) return false;
  if (Peek() != ':') return FailHere("':' after a key"_t);
  ++p_;
  return true;
}

bool JsonCursor::NextKey(JsonText* key) {
  const char c = Peek();
  if (c == '}') {
    ++p_;
    --depth_;
    return fresh_ = false;
  }
  if (!fresh_) {
    if (c != ',') return FailHere("',' or '}}'"_t);
    ++p_;
  }
  return KeyAndColon(key);
}

bool JsonCursor::NextKeyOrEnd(JsonText* key) {
  const char c = Peek();
  if (p_ >= end_ || c == '}') return false;
  if (!fresh_) {
    if (c != ',') return FailHere("',' or '}}'"_t);
    ++p_;
    SkipSpace();
    if (p_ >= end_) return false;
  }
  return KeyAndColon(key);
}

bool JsonCursor::NextItem() {
  const char c = Peek();
  if (c == ']') {
    ++p_;
    --depth_;
    return fresh_ = false;
  }
  if (!fresh_) {
    if (c != ',') return FailHere("',' or ']'"_t);
    ++p_;
    SkipSpace();
  }
  fresh_ = false;
  return !failed();
}

bool JsonCursor::Escape() {  // at the backslash
  if (end_ - p_ < 2) return FailAt(end_, "the rest of a string"_t, true);
  const char c = p_[1];
  if (c == 'u') {
    for (int i = 2; i < 6; ++i) {
      if (p_ + i >= end_) return FailAt(end_, "the rest of a string"_t, true);
      if (!IsHexDigit(p_[i])) return FailAt(p_, "four hexadecimal digits after \\u"_t, false);
    }
    p_ += 6;
    return true;
  }
  if (c == '\0' || std::strchr("\"\\/bfnrt", c) == nullptr)
    return FailAt(p_, "an escape that JSON knows"_t, false);
  p_ += 2;
  return true;
}

bool JsonCursor::String(JsonText* text) {
  if (Peek() != '"') return FailHere("a string"_t);
  fresh_ = false;
  const char* const start = ++p_;
  text->escaped = false;
  while (true) {
    if constexpr (std::endian::native == std::endian::little) {
      while (end_ - p_ >= 8) {
        const uint64_t stops = StringStops(Load8(p_));
        if (stops != 0) {
          p_ += std::countr_zero(stops) / 8;
          break;
        }
        p_ += 8;
      }
    }
    if (p_ >= end_) return FailAt(end_, "'\"' at the end of a string"_t, true);
    const char c = *p_;
    if (c == '"') {
      text->raw = {start, static_cast<size_t>(p_ - start)};
      ++p_;
      return true;
    }
    if (c == '\\') {
      text->escaped = true;
      if (!Escape()) return false;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      return FailAt(p_, "no control character inside a string"_t, false);
    } else {
      ++p_;
    }
  }
}

bool JsonCursor::Word(std::string_view word) {
  fresh_ = false;
  if (!std::string_view(p_, static_cast<size_t>(end_ - p_)).starts_with(word)) return false;
  p_ += word.size();
  return true;
}

bool JsonCursor::FailAtWord(std::string_view word, Message expected) {
  const std::string_view rest(p_, static_cast<size_t>(end_ - p_));
  const bool cut = word.starts_with(rest);
  return FailAt(cut ? end_ : p_, std::move(expected), cut);
}

static bool IsEither(const char* p, const char* end, char a, char b) {
  return p < end && (*p == a || *p == b);
}

static const char* AfterDigits(const char* p, const char* end) {
  while (p < end && IsDigit(*p)) ++p;
  return p;
}

bool JsonCursor::Number(std::string_view* text) {
  char c = Peek();
  if (failed()) return false;
  fresh_ = false;
  const char* const start = p_;
  const char* const end = end_;
  if (c == '-') {
    if (++p_ >= end) return FailAt(end, "a number"_t, true);
    c = *p_;
  }
  if (!IsDigit(c)) {
    const std::string_view word = c == 'I' ? "Infinity" : c == 'N' && p_ == start ? "NaN" : "";
    if (word.empty()) return FailAt(start, "a number"_t, start >= end);
    if (!Word(word)) return FailAtWord(word, "a number"_t);
    *text = {start, static_cast<size_t>(p_ - start)};
    return true;
  }
  const char* p = c == '0' ? p_ + 1 : AfterDigits(p_ + 1, end);
  if (p < end && *p == '.') {
    const char* const first = ++p;
    p = AfterDigits(first, end);
    if (p == first) return FailAt(p, "a digit"_t, p >= end);
  }
  if (IsEither(p, end, 'e', 'E')) {
    ++p;
    if (IsEither(p, end, '+', '-')) ++p;
    const char* const first = p;
    p = AfterDigits(first, end);
    if (p == first) return FailAt(p, "a digit"_t, p >= end);
  }
  p_ = p;
  *text = {start, static_cast<size_t>(p - start)};
  return true;
}

bool JsonCursor::Bool(bool* value) {
  const char c = Peek();
  if (failed()) return false;
  *value = c == 't';
  if (c != 't' && c != 'f') return FailHere("true or false"_t);
  const std::string_view word = *value ? "true" : "false";
  return Word(word) || FailAtWord(word, "true or false"_t);
}

bool JsonCursor::Null() {
  if (Peek() != 'n' || failed()) return FailHere(std::string("null"));
  return Word("null") || FailAtWord("null", std::string("null"));
}

bool JsonCursor::Skip() {
  JsonText text;
  std::string_view number;
  bool value;
  switch (Peek()) {
    case '{':
      for (BeginObject(); NextKey(&text);) Skip();
      return !failed();
    case '[':
      for (BeginArray(); NextItem();) Skip();
      return !failed();
    case '"':
      return String(&text);
    case 't':
    case 'f':
      return Bool(&value);
    case 'n':
      return Null();
    case '\0':
      return FailHere("a value"_t);
    default:
      if (*p_ == '-' || *p_ == 'N' || *p_ == 'I' || IsDigit(*p_)) return Number(&number);
      return FailHere("a value"_t);
  }
}

bool JsonCursor::Raw(std::string_view* text) {
  SkipSpace();
  const char* const start = p_;
  if (!Skip()) return false;
  *text = {start, static_cast<size_t>(p_ - start)};
  return true;
}

Message JsonCursor::found() const {
  if (truncated_) return "the end of the file"_t;
  return Excerpt(std::string_view(p_, static_cast<size_t>(text_end_ - p_)), 16);
}

Status JsonCursor::Error(std::string_view path) const {
  return InvalidDump(path, offset()).Expected(expected()).Found(found());
}

}  // namespace msprobe::formats
