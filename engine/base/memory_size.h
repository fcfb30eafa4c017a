// Amounts of memory as people write them, and how much there is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/status.h"

namespace msprobe {

// "4GB", "1.5 GiB", "800000000": units are powers of 1024. kInvalidArgument: no amount, or none at
// all.
Result<uint64_t> ParseMemorySize(std::string_view text);

std::string MemorySizeText(uint64_t bytes);  // "1.2 GB", "300 MB"; rounded up
std::string MemorySizeFlag(uint64_t bytes);  // as an argument: "1.5GB", "320MB"; rounded up more

// What this process may still take: of the machine, or of the control groups (the container) it
// runs in where that is less. What the system would take back for it (pages of files) is part of
// it, and so is swap.
uint64_t AvailableMemory();
// The same, read from a copy of /proc and /sys below `root`.
uint64_t AvailableMemoryBelow(const std::string& root);

}  // namespace msprobe
