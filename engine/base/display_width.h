// How many columns a text takes on a terminal.
//
//   DisplayWidth("loss") == 4;  // and of "模型" 4 as well: Chinese characters take two columns each
#pragma once

#include <cstddef>
#include <string_view>

namespace msprobe {

// The columns of UTF-8 text. Wide characters take two columns: most of Chinese, Japanese and
// Korean, and emoji, as C++'s std::format counts. Marks that combine with the character before them
// take none. All other characters take one, and so does a byte that is not UTF-8.
int DisplayWidth(std::string_view text);

// The size in bytes of the longest prefix of `text` that takes at most `columns`. The prefix never
// ends inside a character.
size_t PrefixWithin(std::string_view text, int columns);

}  // namespace msprobe
