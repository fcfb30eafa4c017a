// One call, or the way to it, as the answer to where the error begins: the place, how sure that is,
// one sentence of why, and what to look at next.
#pragma once

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// The call's inputs agree, or are not recorded, and an output differs.
FirstDivergence ExplainIntroduced(const Comparison& comparison, int32_t pair);

// Nothing recorded before `pair` is wrong, and yet what goes into it is.
FirstDivergence ExplainInherited(const Comparison& comparison, int32_t pair);

// What connects a call without partner to the first wrong number.
enum class Tie {
  kOutput,  // the wrong value is what the call makes
  kPlace,   // the call runs just before it, or inside the same module
};
// `pair` is the first call with a wrong number, at `row` (-1: as a whole).
FirstDivergence ExplainUnmatched(const Comparison& comparison, int32_t unmatched, int32_t pair,
                                 int32_t row, Tie tie);

// Rounding errors leave what rounding explains at `pair`, and grow most at `jump`.
FirstDivergence ExplainDrift(const Comparison& comparison, int32_t jump, int32_t pair);

}  // namespace msprobe::compare
