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
// Of a number of which only as much matters as a float32 holds: the shortest text that reads back
// as the same float, "4.5626955". Outside of a normal float's range as AppendPythonFloat.
void AppendPythonFloat32(std::string* out, double value);
// The number meant by a text of AppendPythonFloat32 that was read as a double.
double RoundToFloat32(double value);
void AppendInteger(std::string* out, int64_t value);
// The same into `out`, which has room for kLongestNumber characters; returns how many it took.
inline constexpr size_t kLongestNumber = 40;
size_t WritePythonFloat(char* out, double value);
size_t WriteInteger(char* out, int64_t value);
void AppendUnsigned(std::string* out, uint64_t value);
void AppendHex(std::string* out, uint64_t value, int digits);  // lower case, zero padded

// The eight bytes, the highest first, in base 64 without padding: "PTeOEIhdkUA". The letters are
// those of RFC 4648 for file names, with ~ in place of -: msprobe 26 refuses a text that begins
// with -.
void AppendBase64(std::string* out, uint64_t value);
// Takes ~ and -, which dumps held before; nullopt for a text that is no such number.
std::optional<uint64_t> ParseBase64(std::string_view text);

// A JSON string with its quotes; non-ASCII bytes are written as \uXXXX as json.dumps does (invalid
// UTF-8: \ufffd).
void AppendJsonString(std::string* out, std::string_view text);

// The text with U+FFFD for every byte that is no UTF-8. Appends to `out`.
void AppendValidUtf8(std::string* out, std::string_view text);

// The candidate closest to `word` by edit distance, or "" when none is near enough to be a slip of
// the fingers.
std::string_view NearestSpelling(std::string_view word,
                                 std::span<const std::string_view> candidates);

// ASCII letters in lower case.
std::string Lower(std::string_view text);

// Whether a stands before b where runs of digits count as numbers: "step2" before "step10".
bool NaturalLess(std::string_view a, std::string_view b);

std::vector<std::string_view> Split(std::string_view text, char separator);
// Without the spaces, tabs and line breaks at both ends.
std::string_view Trim(std::string_view text);

}  // namespace msprobe
