// Results that a call returns without having written their memory, such as the saved mean of
// MindSpore's BatchNorm on a CPU. Their dump says so and has no numbers of them.
//
//   const bool no_value = LeftUnwritten(dump, 7);   // leaf 7 of the dump
#pragma once

#include <cstdint>

#include "engine/model/table.h"

namespace msprobe::compare {

inline bool LeftUnwritten(const Dump& dump, int32_t leaf) {
  if (dump.unwritten.empty() || dump.AllocationOf(leaf).empty()) return false;
  const Leaf& value = dump.leaves[static_cast<size_t>(leaf)];
  return !value.has_stats && value.fingerprint.empty() && value.checksum.empty();
}

}  // namespace msprobe::compare
