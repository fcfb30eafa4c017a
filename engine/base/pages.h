// Advice to the system about large pieces of memory. No result depends on it.
#pragma once

#include <cstddef>
#include <string_view>

namespace msprobe {

// Files of this size or more are read piece by piece, and the pages of each piece are given back.
inline constexpr size_t kLargeFile = size_t{32} << 20;

// Gives back the memory of the pages that lie completely inside `part`. `part` must be a view into
// the bytes of a MappedFile; the content of other memory would be lost. When the pages are read
// again, the system loads them from its cache or the file.
void ForgetPages(std::string_view part);

// The same, also for the pages around `part`, which the system loads together with the pages that
// are read. `file`: all bytes of the MappedFile.
void ForgetPagesAround(std::string_view part, std::string_view file);

// Copies `part`, a view into a MappedFile, and gives its pages back while it copies, so that only
// the copy takes memory.
void CopyAndForget(std::string_view part, char* out);

// Asks for large pages for memory that is about to be filled, which means fewer page faults.
void PreferLargePages(const void* begin, size_t size);

}  // namespace msprobe
