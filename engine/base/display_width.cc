#include "engine/base/display_width.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace msprobe {
namespace {

struct Range {
  uint32_t first, last;
};

// [format.string.std] of the C++ standard; fmt pads by the same ranges.
constexpr Range kWide[] = {
    {0x1100, 0x115f},   {0x2329, 0x232a},   {0x2e80, 0x303e},   {0x3040, 0xa4cf},
    {0xac00, 0xd7a3},   {0xf900, 0xfaff},   {0xfe10, 0xfe19},   {0xfe30, 0xfe6f},
    {0xff00, 0xff60},   {0xffe0, 0xffe6},   {0x1f300, 0x1f64f}, {0x1f900, 0x1f9ff},
    {0x20000, 0x2fffd}, {0x30000, 0x3fffd},
};

// Blocks of combining marks, joiners and variation selectors.
constexpr Range kCombining[] = {
    {0x300, 0x36f},   {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff}, {0x200b, 0x200f},
    {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f},
};

template <size_t kCount>
bool IsIn(const Range (&ranges)[kCount], uint32_t c) {
  const Range* found =
      std::lower_bound(std::begin(ranges), std::end(ranges), c,
                       [](const Range& range, uint32_t wanted) { return range.last < wanted; });
  return found != std::end(ranges) && c >= found->first;
}

struct Character {
  size_t bytes;
  int columns;
};

// The character at the beginning of `text`, which is not empty.
Character First(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return {1, 1};
  const size_t size = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || size > text.size()) return {1, 1};
  uint32_t c = byte(0) & (0x7f >> size);
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {1, 1};
    c = c << 6 | (byte(i) & 0x3f);
  }
  return {size, IsIn(kCombining, c) ? 0 : IsIn(kWide, c) ? 2 : 1};
}

}  // namespace

int DisplayWidth(std::string_view text) {
  int columns = 0;
  while (!text.empty()) {
    const Character c = First(text);
    columns += c.columns;
    text.remove_prefix(c.bytes);
  }
  return columns;
}

size_t PrefixWithin(std::string_view text, int columns) {
  size_t bytes = 0;
  while (bytes < text.size()) {
    const Character c = First(text.substr(bytes));
    columns -= c.columns;
    if (columns < 0) break;
    bytes += c.bytes;
  }
  return bytes;
}

}  // namespace msprobe
