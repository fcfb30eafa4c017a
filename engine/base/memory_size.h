// Amounts of memory as text, and how much memory is free.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/status.h"

namespace msprobe {

// "4GB", "1.5 GiB", "800000000": units are powers of 1024. kInvalidArgument: the text is not an
// amount, or the amount is 0.
Result<uint64_t> ParseMemorySize(std::string_view text);

std::string MemorySizeText(uint64_t bytes);  // "1.2 GB", "300 MB"; rounded up
std::string MemorySizeFlag(uint64_t bytes);  // as an argument: "1.5GB", "320MB"; rounded up more

// How many bytes this process may still allocate: what the machine has free, or what its control
// groups (the container) allow, whichever is less. Swap counts as free, and so does memory that the
// system can take back (cached pages of files).
uint64_t AvailableMemory();
// The same from a copy of /proc and /sys below `root`, for tests.
uint64_t AvailableMemoryBelow(const std::string& root);

}  // namespace msprobe
