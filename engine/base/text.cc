#include "engine/base/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

namespace msprobe {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

void AppendEscapedUnit(std::string* out, uint32_t unit) {
  *out += "\\u";
  AppendHex(out, unit, 4);
}

// Decodes one UTF-8 sequence; returns its length, or 0 when it is not valid.
int DecodeUtf8(std::string_view text, uint32_t* code_point) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const int length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 0;
  if (length == 0 || lead > 0xf4 || text.size() < static_cast<size_t>(length)) return 0;
  uint32_t value = lead & (0xff >> (length + 1));
  for (int i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    value = value << 6 | (byte(i) & 0x3f);
  }
  const uint32_t smallest = length == 2 ? 0x80 : length == 3 ? 0x800 : 0x10000;
  if (value < smallest || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) return 0;
  *code_point = value;
  return length;
}

}  // namespace

size_t WritePythonFloat(char* out, double value) {
  const auto word = [&](std::string_view text) { return text.copy(out, text.size()); };
  if (std::isnan(value)) return word("NaN");
  if (std::isinf(value)) return word(value < 0 ? "-Infinity" : "Infinity");
  // Python's repr uses an exponent below 1e-4 and from 1e16 on; to_chars would choose the shorter
  // of the two forms.
  const double magnitude = std::fabs(value);
  const bool fixed = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  const auto format = fixed ? std::chars_format::fixed : std::chars_format::scientific;
  char* end = std::to_chars(out, out + kLongestNumber - 2, value, format).ptr;
  if (fixed && std::find(out, end, '.') == end) {
    *end++ = '.';
    *end++ = '0';
  }
  return static_cast<size_t>(end - out);
}

size_t WriteInteger(char* out, int64_t value) {
  return static_cast<size_t>(std::to_chars(out, out + kLongestNumber, value).ptr - out);
}

void AppendPythonFloat(std::string* out, double value) {
  char text[kLongestNumber];
  out->append(text, WritePythonFloat(text, value));
}

namespace {

bool IsInFloatRange(double value) {
  const double magnitude = std::fabs(value);
  return magnitude == 0 || (magnitude >= std::numeric_limits<float>::min() &&
                            magnitude <= std::numeric_limits<float>::max());
}

}  // namespace

double RoundToFloat32(double value) {
  return IsInFloatRange(value) ? static_cast<double>(static_cast<float>(value)) : value;
}

void AppendPythonFloat32(std::string* out, double value) {
  if (!IsInFloatRange(value)) return AppendPythonFloat(out, value);
  std::array<char, 24> buffer;
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), static_cast<float>(value)).ptr;
  const std::string_view text(buffer.data(), static_cast<size_t>(end - buffer.data()));
  *out += text;
  if (text.find_first_of(".e") == std::string_view::npos) *out += ".0";
}

void AppendInteger(std::string* out, int64_t value) {
  char text[kLongestNumber];
  out->append(text, WriteInteger(text, value));
}

void AppendUnsigned(std::string* out, uint64_t value) {
  std::array<char, 24> buffer;
  out->append(buffer.data(),
              std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr);
}

void AppendHex(std::string* out, uint64_t value, int digits) {
  std::array<char, 16> buffer;
  for (int i = digits; i-- > 0; value >>= 4)
    buffer[static_cast<size_t>(i)] = kHexDigits[value & 15];
  out->append(buffer.data(), static_cast<size_t>(digits));
}

namespace {

constexpr char kBase64Digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789~_";
constexpr size_t kBase64Size = 11;  // of 64 bits

}  // namespace

void AppendBase64(std::string* out, uint64_t value) {
  std::array<char, kBase64Size> buffer;
  for (char& c : buffer) {
    c = kBase64Digits[value >> 58];
    value <<= 6;
  }
  out->append(buffer.data(), buffer.size());
}

std::optional<uint64_t> ParseBase64(std::string_view text) {
  static constexpr auto kValues = [] {
    std::array<uint8_t, 256> values{};
    values.fill(64);
    for (uint8_t i = 0; i < 64; ++i) values[static_cast<unsigned char>(kBase64Digits[i])] = i;
    values['-'] = 62;
    return values;
  }();
  if (text.size() != kBase64Size) return std::nullopt;
  uint64_t value = 0;
  uint8_t digit = 0;
  for (const char c : text) {
    value = value << 6 | digit;
    digit = kValues[static_cast<unsigned char>(c)];
    if (digit > 63) return std::nullopt;
  }
  if (digit % 4 != 0) return std::nullopt;  // the last has four bits
  return value << 4 | digit >> 2;
}

namespace {

// Whether JSON has the character as it is, without an escape.
bool IsPlainJson(char c) {
  const unsigned char u = static_cast<unsigned char>(c);
  return u >= 0x20 && u < 0x7f && u != '"' && u != '\\';
}

// Characters that are looked at together: names and stacks are most of what is written.
using Characters = uint8_t __attribute__((vector_size(16)));

// Whether one of them is not plain.
bool HasSpecial(const Characters& some) {
  const auto special = (some - 0x20 >= 0x5f) | (some == '"') | (some == '\\');
  std::array<uint64_t, 2> words;
  std::memcpy(words.data(), &special, sizeof(words));
  return (words[0] | words[1]) != 0;
}

// How many characters from the beginning on are plain.
size_t PlainPrefix(std::string_view text) {
  size_t at = 0;
  Characters some;
  for (; at + sizeof(some) <= text.size(); at += sizeof(some)) {
    std::memcpy(&some, text.data() + at, sizeof(some));
    if (HasSpecial(some)) break;
  }
  if (text.size() - at < sizeof(some)) {
    some = Characters{} + 'a';
    text.copy(reinterpret_cast<char*>(&some), text.size() - at, at);
    if (!HasSpecial(some)) return text.size();
  }
  while (at < text.size() && IsPlainJson(text[at])) ++at;
  return at;
}

// Appends the escape of the first character of `text`; returns how many bytes it has.
size_t AppendEscape(std::string* out, std::string_view text) {
  const unsigned char c = static_cast<unsigned char>(text[0]);
  if (c == '"' || c == '\\') {
    *out += '\\';
    *out += static_cast<char>(c);
  } else if (c == '\b') {
    *out += "\\b";
  } else if (c == '\f') {
    *out += "\\f";
  } else if (c == '\n') {
    *out += "\\n";
  } else if (c == '\r') {
    *out += "\\r";
  } else if (c == '\t') {
    *out += "\\t";
  } else if (c < 0x80) {
    AppendEscapedUnit(out, c);
  } else {
    uint32_t code_point = 0xfffd;
    const int length = DecodeUtf8(text, &code_point);
    if (code_point >= 0x10000) {
      AppendEscapedUnit(out, 0xd800 + ((code_point - 0x10000) >> 10));
      AppendEscapedUnit(out, 0xdc00 + ((code_point - 0x10000) & 0x3ff));
    } else {
      AppendEscapedUnit(out, code_point);
    }
    return static_cast<size_t>(std::max(1, length));
  }
  return 1;
}

}  // namespace

void AppendJsonString(std::string* out, std::string_view text) {
  size_t plain = PlainPrefix(text);
  std::array<char, 96> quoted;  // names: in one piece
  if (plain == text.size() && plain + 2 <= quoted.size()) {
    quoted[0] = quoted[plain + 1] = '"';
    text.copy(quoted.data() + 1, plain);
    out->append(quoted.data(), plain + 2);
    return;
  }
  *out += '"';
  for (;; plain = PlainPrefix(text)) {
    out->append(text.data(), plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    text.remove_prefix(AppendEscape(out, text));
  }
  *out += '"';
}

void AppendValidUtf8(std::string* out, std::string_view text) {
  while (!text.empty()) {
    const auto beyond = std::find_if(text.begin(), text.end(),
                                     [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
    const size_t ascii = static_cast<size_t>(beyond - text.begin());
    *out += text.substr(0, ascii);
    text.remove_prefix(ascii);
    if (text.empty()) return;
    uint32_t code_point;
    const int length = DecodeUtf8(text, &code_point);
    *out += length > 0 ? text.substr(0, static_cast<size_t>(length)) : "\xef\xbf\xbd";
    text.remove_prefix(static_cast<size_t>(std::max(1, length)));
  }
}

namespace {

// Letters to insert, remove, replace or swap with their neighbour (optimal string alignment).
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, above);
    std::swap(above, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j - 1] + (a[i - 1] != b[j - 1]), above[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

}  // namespace

std::string_view NearestSpelling(std::string_view word,
                                 std::span<const std::string_view> candidates) {
  std::string_view best;
  size_t best_distance = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string_view candidate : candidates) {
    const size_t distance = EditDistance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

bool NaturalLess(std::string_view a, std::string_view b) {
  const auto digit = [](std::string_view s, size_t i) {
    return i < s.size() && s[i] >= '0' && s[i] <= '9';
  };
  // The digits from i on, without leading zeros.
  const auto run = [&](std::string_view s, size_t* i) {
    while (digit(s, *i) && s[*i] == '0') ++*i;
    const size_t start = *i;
    while (digit(s, *i)) ++*i;
    return s.substr(start, *i - start);
  };
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (digit(a, i) && digit(b, j)) {
      const std::string_view x = run(a, &i), y = run(b, &j);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else {
      if (a[i] != b[j]) return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]);
      ++i, ++j;
    }
  }
  if (a.size() - i != b.size() - j) return a.size() - i < b.size() - j;
  return a < b;  // "01" and "1" are two names
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) + 1 - first);
}

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return out;
}

}  // namespace msprobe
