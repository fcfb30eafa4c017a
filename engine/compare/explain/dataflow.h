// Which recorded output a recorded input was: dumps name no tensors, but equal numbers of an equal
// shape are hardly a coincidence.
#pragma once

#include <cstdint>

#include "engine/model/table.h"

namespace msprobe::compare {

// The latest record before `before` with an output (of a backward record: a gradient) that has the
// numbers of `leaf`; -1: none, or the leaf's numbers are too poor to tell (all zero, not recorded,
// one element of value 1).
int32_t FindProducer(const Dump& dump, const Leaf& leaf, int32_t before);

// Both leaves hold the same numbers, as far as was recorded.
bool SameNumbers(const Leaf& a, const Leaf& b);

}  // namespace msprobe::compare
