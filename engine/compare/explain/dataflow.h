// Finds the call that made a recorded input. Dumps have no names for tensors; but when an output
// has the same numbers and shape as the input, it is almost surely the same tensor.
#pragma once

#include <cstdint>

#include "engine/model/table.h"

namespace msprobe::compare {

// The last record before record `before` that has an output with the numbers of `leaf`; -1: there
// is none, or the numbers of the leaf do not identify a tensor (all elements are equal, or no
// numbers were recorded).
int32_t FindProducer(const Dump& dump, const Leaf& leaf, int32_t before);
// That output itself; null where FindProducer returns -1.
const Leaf* FindOutput(const Dump& dump, const Leaf& leaf, int32_t before);

// Whether the numbers of a leaf identify a tensor: not if all elements are equal, or none were
// recorded.
bool TellsTensorsApart(const Leaf& leaf);
// Whether both leaves have the same numbers, as far as they were recorded.
bool SameNumbers(const Leaf& a, const Leaf& b);

}  // namespace msprobe::compare
