#include "engine/compare/model/value_text.h"

#include <charconv>
#include <cmath>

#include "engine/base/text.h"
#include "engine/dump/read/source_line.h"
#include "engine/formats/archive/zip.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe::compare {
namespace {

// Appends one character of a Python string literal that stands between `quote` quotes. Bytes beyond
// ASCII stay as they are.
void AppendPythonChar(std::string* out, char c, char quote) {
  switch (c) {
    case '\\':
      *out += "\\\\";
      return;
    case '\n':
      *out += "\\n";
      return;
    case '\r':
      *out += "\\r";
      return;
    case '\t':
      *out += "\\t";
      return;
    default:
      break;
  }
  if (c == quote) {
    *out += '\\';
    *out += c;
  } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
    *out += "\\x";
    AppendHex(out, static_cast<unsigned char>(c), 2);
  } else {
    *out += c;
  }
}

// What Python's str() gives for the value of a plain argument; "" for one that has none recorded,
// such as a memory format.
std::string_view PythonStr(const Leaf& leaf) {
  const std::string_view text = leaf.value;
  if (leaf.dtype == "<class 'NoneType'>") return text == "None" ? text : "";
  if (leaf.dtype == "<class 'str'>") return text;
  if (text == "NaN") return "nan";
  if (text == "Infinity") return "inf";
  return text == "-Infinity" ? "-inf" : text;
}

}  // namespace

std::string_view MatchName(Match value) {
  switch (value) {
    case Match::kExact:
      return "exact";
    case Match::kAligned:
      return "aligned";
    case Match::kTargetOnly:
      return "target only";
    case Match::kGoldenOnly:
      return "golden only";
  }
  return "";
}

std::string_view StatisticText(std::string_view spelled) {
  if (spelled.empty()) return "N/A";
  switch (spelled[0]) {
    case 'N':
      return spelled == "NaN" ? "Nan" : spelled;
    case 'I':
      return spelled == "Infinity" ? " inf" : spelled;
    case '-':
      return spelled == "-Infinity" ? " -inf" : spelled;
    case 'n':
      return spelled == "null" ? "None" : spelled;
    case 't':
      return spelled == "true" ? "True" : spelled;
    case 'f':
      return spelled == "false" ? "False" : spelled;
    default:
      return spelled;
  }
}

std::string ChecksumText(const Leaf& leaf) {
  if (!leaf.checksum.empty()) return std::string(leaf.checksum);
  if (leaf.kind != LeafKind::kScalar) return "";
  if (IsProcessGroup(leaf)) return std::string(leaf.value);
  std::string text;
  AppendHex(&text, formats::Crc32(PythonStr(leaf)), 8);
  return text;
}

bool IsProcessGroup(const Leaf& leaf) { return leaf.type.view().ends_with("ProcessGroup"); }

bool IsPlainNumber(std::string_view text) {
  if (text.empty()) return false;
  const bool begins = (text[0] >= '0' && text[0] <= '9') || text[0] == '-';
  if (!begins) return text == " inf" || text == " -inf";
  bool signed_before = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c >= '0' && c <= '9') || c == '.' || c == 'e' || c == 'E') continue;
    if (c != '+' && c != '-') return false;
    if (i == 0 || signed_before) continue;
    // "-1+1" is no number: a spreadsheet would compute it.
    signed_before = true;
    if (text[i - 1] != 'e' && text[i - 1] != 'E') return false;
  }
  return true;
}

void AppendPythonList(std::string* out, const std::vector<std::string_view>& items) {
  *out += '[';
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) *out += ", ";
    const bool has_single = items[i].find('\'') != std::string_view::npos;
    const char quote = has_single && items[i].find('"') == std::string_view::npos ? '"' : '\'';
    *out += quote;
    for (const char c : items[i]) AppendPythonChar(out, c, quote);
    *out += quote;
  }
  *out += ']';
}

void AppendFrameLists(std::string* out, const std::vector<std::string_view>& frames) {
  *out += '[';
  for (size_t i = 0; i < frames.size(); ++i) {
    if (i > 0) *out += ", ";
    const dump::StackFrame frame = dump::ParseStackFrame(frames[i]);
    if (!frame.parsed) {
      AppendPythonList(out, {frames[i]});
    } else if (frame.source.empty()) {
      AppendPythonList(out, {frame.path, frame.line, frame.function});
      out->replace(out->size() - 1, 1, ", None]");
    } else {
      AppendPythonList(out, {frame.path, frame.line, frame.function, frame.source});
    }
  }
  *out += ']';
}

std::string IndexText(int64_t index, Shape shape) {
  const std::span<const int64_t> extents = shape.extents();
  if (!shape.known() || shape.elements() == 0) return std::to_string(index);
  std::vector<int64_t> position(extents.size());
  for (size_t d = extents.size(); d-- > 0; index /= extents[d]) position[d] = index % extents[d];
  return ShapeText(position);
}

double Rounded(double value, int decimals) {
  // From 1e15 on a double has no decimals to round, and its text would not fit.
  if (std::isfinite(value) && std::fabs(value) < 1e15) {
    char text[64];
    const auto end =
        std::to_chars(text, text + sizeof(text), value, std::chars_format::fixed, decimals).ptr;
    std::from_chars(text, end, value);
  }
  return value;
}

}  // namespace msprobe::compare
