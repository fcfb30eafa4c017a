// Text in columns for a terminal, as DisplayWidth counts them: Chinese characters take two.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace msprobe::compare {

int Columns(std::string_view text);
std::string Clean(std::string_view text);  // control characters become '?', line ends a space
std::string Pad(std::string_view text, int width);       // adds spaces at the end
std::string CutLeft(std::string_view text, int width);   // "...end" where it does not fit
std::string CutRight(std::string_view text, int width);  // "start..."
// "mod~.layers.4.ColumnPar~.forward.0": the longest parts are cut, numbers stay. When the
// name is still too long, it is cut at the left.
std::string CutParts(std::string_view name, int width);
// "/home/me/run/train.py:41 in forward: y = gelu(x)": folders are cut first, then the end.
std::string CutSource(std::string_view line, int width);
// Columns of a text that fits into two lines of `width`, wherever Wrap breaks the first line.
constexpr int SourceRoom(int width) { return 2 * width - 16; }
// Lines of at most `width` columns, broken at spaces; what does not fit in `most` lines is cut with
// "...".
std::vector<std::string> Wrap(std::string_view text, int width, size_t most);

}  // namespace msprobe::compare
