// Memory that a call overwrites is not an input of the call: the destination of scatter_ or
// bernoulli_, x in `x[index] = y`, the argument `out`. What lies there before the call may be
// memory that nobody wrote, which differs from run to run.
#pragma once

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Rows that hold the old content of a destination become unknown with Reason::kOverwritten, where
// all tensors that the call returns are equal or within rounding. Where one differs, the old
// content may be the cause, and its rows keep their verdicts. `x[index] = y` returns nothing: what
// is wrong in x is seen where x is read next.
//
// The measures of all rows must be filled.
void ForgiveOverwritten(Comparison* comparison);

}  // namespace msprobe::compare
