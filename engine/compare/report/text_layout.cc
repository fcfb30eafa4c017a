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

std::string CutMiddle(std::string_view text, int width) {
  if (Columns(text) <= width) return std::string(text);
  if (width <= 6) return CutRight(text, width);
  const int begin = (width - 3) / 3;
  return std::string(text.substr(0, PrefixWithin(text, begin))) + "..." +
         std::string(EndOf(text, width - 3 - begin));
}

namespace {

// The last place up to `end` where a line may end: at a blank, or beside a wide character, as lines
// of Chinese end, but not before a closing mark or behind an opening one. npos: there is none.
size_t LastBreak(std::string_view text, size_t end) {
  constexpr std::string_view kClosing[] = {"，", "。", "；", "：", "、",
                                           "）", "”",  "》", "！", "？"};
  const auto begins = [&](size_t at) {
    return at >= text.size() || (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
  };
  const auto wide = [&](size_t at) {
    size_t next = at + 1;
    while (!begins(next)) ++next;
    return next - at >= 3 && DisplayWidth(text.substr(at, next - at)) == 2;
  };
  for (size_t at = end; at > 0; --at) {
    if (!begins(at)) continue;
    if (at < text.size() && text[at] == ' ') return at;
    size_t before = at - 1;
    while (before > 0 && !begins(before)) --before;
    if (at >= text.size() || text[before] == ' ' || (!wide(before) && !wide(at))) continue;
    const bool closing = std::any_of(std::begin(kClosing), std::end(kClosing),
                                     [&](auto mark) { return text.substr(at).starts_with(mark); });
    if (!closing && !text.substr(before).starts_with("（") && !text.substr(before).starts_with("“"))
      return at;
  }
  return text.npos;
}

// Where a line of at most `width` columns ends in a text that does not fit.
size_t LineEnd(std::string_view text, int width) {
  // At least one character: the narrowest place is two columns wide.
  const size_t end = std::max(PrefixWithin(text, width), PrefixWithin(text, 2));
  const size_t space = LastBreak(text, end);
  if (space != text.npos && space > 0) return space;
  // A word too long for a line.
  const std::string_view fitting = text.substr(0, end);
  for (const char separator : {'/', '.', '_'}) {
    const size_t part = fitting.rfind(separator);
    if (part != text.npos && part >= end / 3) return part + 1;
  }
  return end;
}

}  // namespace

std::vector<std::string> Wrap(std::string_view text, int width, size_t most) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    if (lines.size() + 1 == most || Columns(text) <= width) {
      lines.push_back(CutRight(text, width));
      break;
    }
    const size_t end = LineEnd(text, width);
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
    while (text.starts_with(' ')) text.remove_prefix(1);
  }
  return lines;
}

std::vector<std::string> WrapWords(std::string_view text, int width) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    size_t end = text.size();
    if (Columns(text) > width) {
      const size_t last = PrefixWithin(text, width);
      const size_t space = LastBreak(text, last);
      end = std::min(end, space != text.npos && space > 0 ? space : text.find(' ', last));
    }
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
    while (text.starts_with(' ')) text.remove_prefix(1);
  }
  return lines;
}

}  // namespace msprobe::compare
