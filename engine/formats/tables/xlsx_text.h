// Text as a cell of an Excel file can hold it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace msprobe::formats {

inline constexpr size_t kMaxXlsxCharacters = 32767;  // of a cell, in UTF-16 units as Excel counts

// Valid UTF-8 without NUL: other bytes become U+FFFD. A text over the limit is cut and ends in
// " [cut]"; with a limit below 32, that of a sheet's name, it is only cut.
std::string XlsxText(std::string_view text, size_t max_characters = kMaxXlsxCharacters);
// The XML of such a text: markup becomes entities; control characters, which XML cannot hold, are
// spelled as Excel does (_x0007_).
void AppendXmlText(std::string* out, std::string_view text);
void AssignXlsxText(std::string_view text, size_t max_characters, std::string* out);

}  // namespace msprobe::formats
