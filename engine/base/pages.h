// What the system should know of large pieces of memory. Hints: nothing depends on them.
#pragma once

#include <cstddef>
#include <string_view>

namespace msprobe {

// Gives back the memory of the pages that lie wholly inside `part`, a view into a MappedFile's
// bytes (never other memory: it would be lost). They come back from the system's cache when they
// are touched again.
void ForgetPages(std::string_view part);

// Asks for large pages behind memory that is about to be filled: fewer faults.
void PreferLargePages(const void* begin, size_t size);

}  // namespace msprobe
