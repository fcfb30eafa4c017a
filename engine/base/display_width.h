// How many columns a text takes on a terminal.
//
//   DisplayWidth("loss") == 4;  // and of "模型" 4 as well: Chinese characters take two columns each
#pragma once

#include <cstddef>
#include <string_view>

namespace msprobe {

// Of UTF-8. Wide characters (those of C++'s std::format, which are most of Chinese, Japanese and
// Korean, and emoji) take two columns, marks that combine with the character before them none,
// all others one; so does a byte that is no UTF-8.
int DisplayWidth(std::string_view text);

// Bytes of the longest beginning that takes at most `columns`. Never ends within a character.
size_t BytesWithin(std::string_view text, int columns);

}  // namespace msprobe
