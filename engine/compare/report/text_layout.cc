#include "engine/compare/report/text_layout.h"

#include <algorithm>

#include "engine/base/display_width.h"
#include "engine/base/text.h"

namespace msprobe::compare {
namespace {

// The longest end of at most `columns`.
std::string_view EndOf(std::string_view text, int columns) {
  for (int excess = DisplayWidth(text) - columns; excess > 0;
       excess = DisplayWidth(text) - columns) {
    // A wide character is cut as a whole.
    const size_t cut = PrefixWithin(text, excess);
    text.remove_prefix(cut > 0 ? cut : PrefixWithin(text, 2));
  }
  return text;
}

}  // namespace

int Columns(std::string_view text) { return DisplayWidth(text); }

std::string Clean(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n' || c == '\t') {
      c = ' ';
    } else if (byte < 0x20 || byte == 0x7f) {
      c = '?';
    }
  }
  return out;
}

std::string Pad(std::string_view text, int width) {
  return std::string(text) + std::string(std::max(0, width - Columns(text)), ' ');
}

std::string CutRight(std::string_view text, int width) {
  if (Columns(text) <= width) return std::string(text);
  if (width <= 3) return std::string(text.substr(0, PrefixWithin(text, std::max(width, 0))));
  return std::string(text.substr(0, PrefixWithin(text, width - 3))) + "...";
}

std::string CutLeft(std::string_view text, int width) {
  if (Columns(text) <= width) return std::string(text);
  if (width <= 3) return CutRight(text, width);
  return "..." + std::string(EndOf(text, width - 3));
}

std::string CutParts(std::string_view name, int width) {
  constexpr int kShortest = 4;  // columns of a part, the mark with it
  if (Columns(name) <= width) return std::string(name);
  std::vector<std::string_view> parts = Split(name, '.');
  std::vector<int> widths;
  int excess = static_cast<int>(parts.size()) - 1 - width;
  for (const std::string_view part : parts) {
    const bool number = part.find_first_not_of("0123456789") == part.npos;
    widths.push_back(number ? 0 : Columns(part));
    excess += Columns(part);
  }
  for (; excess > 0; --excess) {
    const auto longest = std::max_element(widths.begin(), widths.end());
    if (*longest <= kShortest) return CutLeft(name, width);
    --*longest;
  }
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += '.';
    const bool cut = widths[i] > 0 && widths[i] < Columns(parts[i]);
    out += cut ? parts[i].substr(0, PrefixWithin(parts[i], widths[i] - 1)) : parts[i];
    if (cut) out += '~';
  }
  return out;
}

std::string CutSource(std::string_view line, int width) {
  if (Columns(line) <= width) return std::string(line);
  const size_t file = line.substr(0, line.find(" in ")).rfind('/');
  const size_t folder = file == line.npos || file == 0 ? line.npos : line.rfind('/', file - 1);
  if (folder == line.npos || folder == 0) return CutRight(line, width);
  return CutRight("..." + std::string(line.substr(folder)), width);
}

std::vector<std::string> Wrap(std::string_view text, int width, size_t most) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    if (lines.size() + 1 == most || Columns(text) <= width) {
      lines.push_back(CutRight(text, width));
      break;
    }
    // At least one character: the narrowest place is two columns wide.
    size_t end = std::max(PrefixWithin(text, width), PrefixWithin(text, 2));
    // A word too long for a line is broken where the line ends.
    const size_t space =
        end < text.size() && text[end] == ' ' ? end : text.substr(0, end).rfind(' ');
    if (space != text.npos && space > 0) end = space;
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
    while (text.starts_with(' ')) text.remove_prefix(1);
  }
  return lines;
}

}  // namespace msprobe::compare
