// Text as our file formats spell it.
//
//   AppendPythonFloat(&line, 1e-5);      // 1e-05; infinities and NaN as json.dumps writes them
//   AppendJsonString(&line, "a\"b");     // "a\"b", with the quotes
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace msprobe {

// The shortest text that reads back as the same double, spelled as Python's repr(float): "1.0",
// "1e-05", "1e+16". Not-finite values are JSON's common extension: NaN, Infinity, -Infinity.
void AppendPythonFloat(std::string* out, double value);
// For a number of which only the precision of a float32 matters: the shortest text that reads back
// as the same float, "4.5626955". Outside of the range of normal floats, as AppendPythonFloat.
void AppendPythonFloat32(std::string* out, double value);
// The number that AppendPythonFloat32 wrote, of its text read as a double.
double RoundToFloat32(double value);
void AppendInteger(std::string* out, int64_t value);
// The same into `out`, which has room for kLongestNumber characters; returns how many were written.
inline constexpr size_t kLongestNumber = 40;
size_t WritePythonFloat(char* out, double value);
size_t WriteInteger(char* out, int64_t value);
void AppendUnsigned(std::string* out, uint64_t value);
void AppendHex(std::string* out, uint64_t value, int digits);  // lower case, zero padded

// The eight bytes of the number, highest first, in base 64 without padding: "PTeOEIhdkUA". The
// alphabet is RFC 4648's for file names, with ~ in place of -: msprobe 26 refuses a text that
// begins with -.
void AppendBase64(std::string* out, uint64_t value);
// The inverse. Accepts ~, and - as in dumps that were written before. nullopt: the text is not such
// a number.
std::optional<uint64_t> ParseBase64(std::string_view text);

// A JSON string with its quotes; non-ASCII bytes are written as \uXXXX as json.dumps does (invalid
// UTF-8: \ufffd).
void AppendJsonString(std::string* out, std::string_view text);

// Appends the text to `out`, with U+FFFD in place of every byte that is not UTF-8.
void AppendValidUtf8(std::string* out, std::string_view text);

// The candidate closest to `word` by edit distance; "" when none is near enough to be a typing
// error.
std::string_view NearestSpelling(std::string_view word,
                                 std::span<const std::string_view> candidates);

// ASCII letters in lower case.
std::string Lower(std::string_view text);

// Whether a sorts before b when runs of digits count as numbers: "step2" before "step10".
bool NaturalLess(std::string_view a, std::string_view b);

std::vector<std::string_view> Split(std::string_view text, char separator);
// Without the spaces, tabs and line breaks at both ends.
std::string_view Trim(std::string_view text);

}  // namespace msprobe
