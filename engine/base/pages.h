// What the system should know of large pieces of memory. Hints: nothing depends on them.
#pragma once

#include <cstddef>
#include <string_view>

namespace msprobe {

// Files from this size on are walked through a piece at a time, whose pages are given back.
inline constexpr size_t kLargeFile = size_t{32} << 20;

// Gives back the memory of the pages that lie wholly inside `part`, a view into a MappedFile's
// bytes (never other memory: it would be lost). They come back from the system's cache when they
// are touched again.
void ForgetPages(std::string_view part);

// The same for the pages around it, too, that the system fetches with those that are touched;
// `part` lies in `file`, a MappedFile's bytes.
void ForgetPagesAround(std::string_view part, std::string_view file);

// Copies `part`, of a MappedFile's bytes, and gives its pages back on the way: what is needed at a
// time is the copy.
void CopyAndForget(std::string_view part, char* out);

// Asks for large pages behind memory that is about to be filled: fewer faults.
void PreferLargePages(const void* begin, size_t size);

}  // namespace msprobe
