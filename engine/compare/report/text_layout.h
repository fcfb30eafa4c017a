// Text in columns for a terminal, as DisplayWidth counts them: Chinese characters take two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace msprobe::compare {

int Columns(std::string_view text);
std::string Clean(std::string_view text);  // control characters become '?', line ends a space
std::string Pad(std::string_view text, int width);        // adds spaces at the end
std::string CutRight(std::string_view text, int width);   // "start..." where it does not fit
std::string CutMiddle(std::string_view text, int width);  // "/home/m...step0/rank"
// Lines of at most `width` columns, broken at spaces. A longer word is broken after "/", else after
// ".", else after "_", so that the parts of a name stay whole; else where the line ends. What does
// not fit in `most` lines is cut with "...".
std::vector<std::string> Wrap(std::string_view text, int width, size_t most = SIZE_MAX);
// The same without a limit, and no word is broken: a longer word is longer than its line.
std::vector<std::string> WrapWords(std::string_view text, int width);

}  // namespace msprobe::compare
