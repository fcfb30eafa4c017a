// Text as a cell of an Excel file can hold it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace msprobe::formats {

inline constexpr size_t kMaxXlsxCharacters = 32767;  // of a cell, in UTF-16 units as Excel counts

// Valid UTF-8 without NUL: bytes that are not become U+FFFD. A longer text is cut and ends in "
// [cut]" (in a limit below 32, which is that of a sheet's name, it is only cut).
std::string XlsxText(std::string_view text, size_t max_characters = kMaxXlsxCharacters);
// Of a text that is that already, the XML: markup as entities, control characters, which XML does
// not have, as Excel spells them (_x0007_).
void AppendXmlText(std::string* out, std::string_view text);
void AssignXlsxText(std::string_view text, size_t max_characters, std::string* out);

}  // namespace msprobe::formats
