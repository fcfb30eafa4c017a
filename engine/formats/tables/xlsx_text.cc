#include "engine/formats/tables/xlsx_text.h"

#include <algorithm>
#include <cstdint>

#include "engine/base/text.h"

namespace msprobe::formats {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD
constexpr std::string_view kCut = " [cut]";

// Length of the well-formed UTF-8 sequence at the start of `text`, or 0. XML forbids U+FFFE and
// U+FFFF.
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first == 0) return 0;
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const uint8_t second = byte(1);
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool surrogate = first == 0xed && second >= 0xa0;
  const bool too_large = first == 0xf4 && second >= 0x90;
  const bool forbidden = first == 0xef && second == 0xbf && byte(2) >= 0xbe;
  return overlong || surrogate || too_large || forbidden ? 0 : length;
}

// Whether XML, or a reader of Excel files, would not accept the character as it is. It is written
// as "_x0007_".
bool IsControl(unsigned char c) { return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f; }

// Whether the text itself holds "_x0007_" here, which a reader would take for an escape; also when
// the last underscore is the first character of the escape that follows.
bool LooksEscaped(std::string_view text) {
  const auto is_hex = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  };
  return text.size() >= 7 && text[1] == 'x' &&
         (text[6] == '_' || IsControl(static_cast<unsigned char>(text[6]))) &&
         std::all_of(text.begin() + 2, text.begin() + 6, is_hex);
}

}  // namespace

void AppendXmlText(std::string* out, std::string_view text) {
  size_t plain = 0;  // start of the characters that need no change
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (!IsControl(c) && c != '&' && c != '<' && c != '>' && c != '"' && c != '_') continue;
    if (c == '_' && !LooksEscaped(text.substr(i))) continue;
    out->append(text, plain, i - plain);
    plain = i + 1;
    switch (c) {
      case '&':
        *out += "&amp;";
        break;
      case '<':
        *out += "&lt;";
        break;
      case '>':
        *out += "&gt;";
        break;
      case '"':
        *out += "&quot;";
        break;
      default:
        *out += "_x00";
        AppendHex(out, c, 2);
        *out += '_';
    }
  }
  out->append(text, plain);
}

void AssignXlsxText(std::string_view text, size_t max_characters, std::string* out) {
  // Nearly every cell is short and plain.
  const bool plain = text.size() <= max_characters &&
                     std::all_of(text.begin(), text.end(), [](char c) { return c > 0; });
  if (plain) {
    out->assign(text);
    return;
  }
  out->clear();
  const size_t tail = max_characters >= 32 ? kCut.size() : 0;
  size_t characters = 0, cut_at = 0;  // cut_at: bytes that fit together with the tail
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    const size_t units = length == 4 ? 2 : 1;
    if (characters + units > max_characters) {
      out->resize(cut_at);
      if (tail > 0) out->append(kCut);
      return;
    }
    characters += units;
    out->append(length == 0 ? kReplacement : text.substr(0, length));
    text.remove_prefix(std::max<size_t>(length, 1));
    if (characters + tail <= max_characters) cut_at = out->size();
  }
}

std::string XlsxText(std::string_view text, size_t max_characters) {
  std::string out;
  AssignXlsxText(text, max_characters, &out);
  return out;
}

}  // namespace msprobe::formats
