// Calls other than the first wrong one that the error may have begun in: the one that has no
// partner, the module around it, the one where rounding errors grew. Places only; explain.h says
// what they mean.
#pragma once

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Each answers an index into Comparison::pairs, or -1: there is none.

// A call without partner, before `pair`, that made one of the two values: an operation inserted
// here or missing there.
int32_t UnmatchedMakerOf(const Comparison& comparison, int32_t pair, const Leaf& target,
                         const Leaf& golden);
// A call without partner in the same direction, shortly before `pair`.
int32_t UnmatchedNear(const Comparison& comparison, int32_t pair);
// A call without partner directly inside this module call.
int32_t UnmatchedInside(const Comparison& comparison, int32_t module);
// The innermost module call around `pair` whose own inputs agree: the error enters inside it.
int32_t EnclosingIntroducer(const Comparison& comparison, int32_t pair);
// When the error at `pair` has grown rather than begun: the call, at or before it, with the largest
// growth.
int32_t LargestJump(const Comparison& comparison, int32_t pair);

}  // namespace msprobe::compare
