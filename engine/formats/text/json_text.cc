// What the strings and numbers of a JSON text stand for.
#include <algorithm>
#include <charconv>
#include <limits>

#include "engine/formats/text/json.h"

namespace msprobe::formats {
namespace {

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
  std::from_chars(raw.data() + at, raw.data() + at + 4, unit, 16);
  return unit;
}

// For a number that is beyond the range of a double: true when it is too small, false when it is
// too large. Its exponent and the place of its first digit other than 0 decide.
bool IsBelowOne(std::string_view text) {
  constexpr int64_t kFar = int64_t{1} << 62;
  const std::string_view digits = text.substr(0, text.find_first_of("eE"));
  const auto point = static_cast<int64_t>(std::min(digits.find('.'), digits.size()));
  const auto first = static_cast<int64_t>(digits.find_first_of("123456789"));
  std::string_view exponent = text.substr(std::min(digits.size() + 1, text.size()));
  if (exponent.starts_with('+')) exponent.remove_prefix(1);
  int64_t shift = 0;
  if (std::from_chars(exponent.data(), exponent.data() + exponent.size(), shift).ec ==
      std::errc::result_out_of_range) {
    shift = exponent.starts_with('-') ? -kFar : kFar;
  }
  return point - first + std::clamp(shift, -kFar, kFar) <= 0;
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

double JsonNumber(std::string_view text) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end == text.data() + text.size()) {
    if (error == std::errc()) return value;
    if (error == std::errc::result_out_of_range) {
      const double magnitude = IsBelowOne(text) ? 0 : kInf;
      return text.starts_with('-') ? -magnitude : magnitude;
    }
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace msprobe::formats
