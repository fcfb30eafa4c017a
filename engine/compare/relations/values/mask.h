// Tensors that only tell some elements from the others, and how much contents tell.
//
//   BitsOf(value);   // 8.9 of a mask that sets 4 of 12 elements: one of 495
#pragma once

#include <cstdint>

#include "engine/compare/relations/values/graph.h"

namespace msprobe::compare::relations {

// A tensor that only tells k elements from the other n - k.
struct Mask {
  enum Coding { kNone, kBool, kAdded, kFactor } coding = kNone;
  int64_t n = 0, k = 0;
};

Mask MaskOf(const Value& value);
// The same for all masks of so many elements, however they are written.
uint64_t MaskKey(const Mask& mask);
// How many bits say which content this is, of those that have its numbers: of a mask, which
// elements are set; of integers, each element. Infinite for other floats.
double BitsOf(const Value& value);

}  // namespace msprobe::compare::relations
