#include "engine/formats/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>

namespace msprobe {
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

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

void AppendUtf8(std::string* out, uint32_t c) {
  if (c < 0x80) {
    *out += static_cast<char>(c);
    return;
  }
  const int tail = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  constexpr uint32_t kLead[] = {0, 0xc0, 0xe0, 0xf0};
  *out += static_cast<char>(kLead[tail] | c >> (6 * tail));
  for (int i = tail - 1; i >= 0; --i) *out += static_cast<char>(0x80 | (c >> (6 * i) & 0x3f));
}

// Reads the four digits after "\u"; the cursor has checked that they are there.
uint32_t HexUnit(std::string_view raw, size_t at) {
  uint32_t unit = 0;
  for (size_t i = at; i < at + 4; ++i) unit = unit << 4 | static_cast<uint32_t>(HexDigit(raw[i]));
  return unit;
}

}  // namespace

void AppendJsonText(std::string* out, JsonText text) {
  if (!text.escaped) {
    *out += text.raw;
    return;
  }
  const std::string_view raw = text.raw;
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '\\') {
      *out += raw[i];
      continue;
    }
    switch (const char c = raw[++i]) {
      case 'b':
        *out += '\b';
        break;
      case 'f':
        *out += '\f';
        break;
      case 'n':
        *out += '\n';
        break;
      case 'r':
        *out += '\r';
        break;
      case 't':
        *out += '\t';
        break;
      case 'u': {
        uint32_t unit = HexUnit(raw, i + 1);
        i += 4;
        if (unit >= 0xd800 && unit < 0xdc00 && i + 6 < raw.size() && raw[i + 1] == '\\' &&
            raw[i + 2] == 'u') {
          const uint32_t low = HexUnit(raw, i + 3);
          if (low >= 0xdc00 && low < 0xe000) {
            unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
            i += 6;
          }
        }
        AppendUtf8(out, unit >= 0xd800 && unit < 0xe000 ? 0xfffd : unit);
        break;
      }
      default:
        *out += c;  // quote, backslash, slash
    }
  }
}

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

bool JsonCursor::FailAt(const char* where, const char* expected, bool truncated) {
  if (expected_ == nullptr) {
    p_ = where;
    expected_ = expected;
    truncated_ = truncated;
    // Every later call sees the end of the text, whatever it looks for.
    end_ = where;
  }
  return false;
}

bool JsonCursor::BeginObject() {
  if (Peek() != '{' || failed()) return FailHere("'{'");
  if (++depth_ > kMaxDepth) return FailAt(p_, "no more than 512 levels of nesting", false);
  ++p_;
  return fresh_ = true;
}

bool JsonCursor::BeginArray() {
  if (Peek() != '[' || failed()) return FailHere("'['");
  if (++depth_ > kMaxDepth) return FailAt(p_, "no more than 512 levels of nesting", false);
  ++p_;
  return fresh_ = true;
}

bool JsonCursor::KeyAndColon(JsonText* key) {
  fresh_ = false;
  if (Peek() != '"') return FailHere("'\"' before a key");
  if (!String(key)) return false;
  if (Peek() != ':') return FailHere("':' after a key");
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
    if (c != ',') return FailHere("',' or '}'");
    ++p_;
  }
  return KeyAndColon(key);
}

bool JsonCursor::NextKeyOrEnd(JsonText* key) {
  const char c = Peek();
  if (p_ >= end_ || c == '}') return false;
  if (!fresh_) {
    if (c != ',') return FailHere("',' or '}'");
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
    if (c != ',') return FailHere("',' or ']'");
    ++p_;
    SkipSpace();
  }
  fresh_ = false;
  return !failed();
}

bool JsonCursor::Escape() {  // at the backslash
  if (end_ - p_ < 2) return FailAt(end_, "the rest of a string", true);
  const char c = p_[1];
  if (c == 'u') {
    for (int i = 2; i < 6; ++i) {
      if (p_ + i >= end_) return FailAt(end_, "the rest of a string", true);
      if (HexDigit(p_[i]) < 0) return FailAt(p_, "four hexadecimal digits after \\u", false);
    }
    p_ += 6;
    return true;
  }
  if (c == '\0' || std::strchr("\"\\/bfnrt", c) == nullptr)
    return FailAt(p_, "an escape that JSON knows", false);
  p_ += 2;
  return true;
}

bool JsonCursor::String(JsonText* text) {
  if (Peek() != '"') return FailHere("a string");
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
    if (p_ >= end_) return FailAt(end_, "'\"' at the end of a string", true);
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
      return FailAt(p_, "no control character inside a string", false);
    } else {
      ++p_;
    }
  }
}

bool JsonCursor::Literal(std::string_view word, const char* expected) {
  fresh_ = false;
  const std::string_view rest(p_, static_cast<size_t>(end_ - p_));
  if (rest.substr(0, word.size()) == word) {
    p_ += word.size();
    return true;
  }
  if (rest == word.substr(0, rest.size())) return FailAt(end_, expected, true);
  return FailAt(p_, expected, false);
}

bool JsonCursor::Number(std::string_view* text) {
  char c = Peek();
  if (failed()) return false;
  fresh_ = false;
  const char* const start = p_;
  const char* const end = end_;
  if (c == '-') {
    if (++p_ >= end) return FailAt(end, "a number", true);
    c = *p_;
  }
  if (!IsDigit(c)) {
    if (c == 'I' ? Literal("Infinity", "a number")
                 : c == 'N' && p_ == start && Literal("NaN", "a number")) {
      *text = {start, static_cast<size_t>(p_ - start)};
      return true;
    }
    return FailAt(start, "a number", start >= end);
  }
  const char* p = p_ + 1;
  if (c != '0') {
    while (p < end && IsDigit(*p)) ++p;
  }
  if (p < end && *p == '.') {
    const char* const first = ++p;
    while (p < end && IsDigit(*p)) ++p;
    if (p == first) return FailAt(p, "a digit", p >= end);
  }
  if (p < end && (*p == 'e' || *p == 'E')) {
    ++p;
    if (p < end && (*p == '+' || *p == '-')) ++p;
    const char* const first = p;
    while (p < end && IsDigit(*p)) ++p;
    if (p == first) return FailAt(p, "a digit", p >= end);
  }
  p_ = p;
  *text = {start, static_cast<size_t>(p - start)};
  return true;
}

bool JsonCursor::Bool(bool* value) {
  const char c = Peek();
  if (failed()) return false;
  *value = c == 't';
  if (c == 't') return Literal("true", "true or false");
  if (c == 'f') return Literal("false", "true or false");
  return FailHere("true or false");
}

bool JsonCursor::Null() {
  if (Peek() != 'n' || failed()) return FailHere("null");
  return Literal("null", "null");
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
      return FailHere("a value");
    default:
      if (*p_ == '-' || *p_ == 'N' || *p_ == 'I' || IsDigit(*p_)) return Number(&number);
      return FailHere("a value");
  }
}

bool JsonCursor::Raw(std::string_view* text) {
  SkipSpace();
  const char* const start = p_;
  if (!Skip()) return false;
  *text = {start, static_cast<size_t>(p_ - start)};
  return true;
}

Status JsonCursor::Error(std::string_view path) const {
  return InvalidDump(path, offset())
      .Expected(expected_ == nullptr ? "" : expected_)
      .Found(truncated_ ? "the end of the file"
                        : Excerpt(std::string_view(p_, static_cast<size_t>(text_end_ - p_)), 16));
}

double JsonNumber(std::string_view text) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end == text.data() + text.size()) {
    if (error == std::errc()) return value;
    if (error == std::errc::result_out_of_range) {
      // Too large or too small: the exponent's sign, or its absence, tells which.
      const size_t e = text.find_first_of("eE");
      const bool small = e != std::string_view::npos
                             ? text.substr(e + 1).starts_with('-')
                             : text.substr(0, 3).find("0.") != std::string_view::npos;
      const double magnitude = small ? 0 : kInf;
      return text.starts_with('-') ? -magnitude : magnitude;
    }
  }
  return std::numeric_limits<double>::quiet_NaN();
}

// ---- the tree ----

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
          .Expected("nothing after the document")
          .Found(Excerpt(text_.substr(json_.offset()), 16));
    }
    return root;
  }

 private:
  Status SyntaxError() {
    const Status error = json_.Error(path_);
    // The cursor's message without its byte offset: people count lines in a file they edit.
    std::string message = error.message();
    const std::string prefix = fmt::format("{}:{}: ", path_, json_.offset());
    if (message.starts_with(prefix)) message.erase(0, prefix.size());
    return InvalidConfig(path_, LineNow()).Says(message);
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
                .Says(fmt::format("key {} appears twice", Excerpt(member.key)));
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

std::string JsonValue::Describe() const {
  switch (kind) {
    case Kind::kNull:
      return "null";
    case Kind::kBool:
      return boolean ? "true" : "false";
    case Kind::kNumber:
      return text;
    case Kind::kString:
      return Excerpt(text);
    case Kind::kArray:
      return "a list";
    case Kind::kObject:
      return "an object";
  }
  return "";
}

Result<JsonValue> ParseJson(std::string_view text, std::string_view path) {
  return TreeBuilder(text, path).Build();
}

}  // namespace msprobe
