// Calls in which the error may have begun, other than the first wrong call: a call without a
// partner, the module around the wrong call. Only places are found here; explain.h says what they
// mean.
#pragma once

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Each function returns an index into Comparison::pairs, or -1: there is none.

// A call without a partner, before `pair`, that made one of the two values: an operation that one
// run has and the other has not. -1 where `pair` stands behind that call in one run and before it
// in the other: then `pair` itself is at another place.
int32_t UnmatchedMakerOf(const Comparison& comparison, int32_t pair, const Leaf& target,
                         const Leaf& golden);
// A call without a partner, in the same direction as `pair` and shortly before it.
int32_t UnmatchedNear(const Comparison& comparison, int32_t pair);
// `pair` is a backward call. The gradient that it takes is the sum of the gradients of all uses of
// its forward call's results. Where only one run differentiates one of the uses: the call that
// joins this use to what both runs differentiate. `loss + 0.1 * penalty` in the one run and `loss`
// in the other: the call of `+`. A forward call where only that run has it, otherwise a backward
// call.
int32_t UnmatchedTerm(const Comparison& comparison, int32_t pair);
// The innermost call of a module around `pair` that introduces the error: its inputs agree, so the
// error begins inside it.
int32_t EnclosingIntroducer(const Comparison& comparison, int32_t pair);
// The call of the module in which the call `pair` runs; only one that is recorded on both sides.
int32_t CallAround(const Comparison& comparison, int32_t pair);
// The outermost call that had a wrong input before `pair` began: a module is recorded behind the
// calls inside it, but its inputs were there before them. `pair` itself when there is none.
int32_t OutermostWithWrongInput(const Comparison& comparison, int32_t pair);

// The first row that differs among the tensors that go into the call, an index into
// Comparison::rows; -1: there is none.
int32_t FirstWrongInput(const Comparison& comparison, int32_t pair);

}  // namespace msprobe::compare
