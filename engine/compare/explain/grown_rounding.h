// Rounding that grows from call to call until it is larger than one call explains. Two runs in
// different environments (threads, kernels, a coarser dtype) round differently from their first
// calls on; a deep network, and most of all its normalisations, enlarge that.
//
//   const bool changed = ForgiveGrownRounding(&comparison);   // then classify the calls again
#pragma once

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Goes through the calls in execution order until one is wrong by more than what grew: its error is
// more than a few times the largest rounding before it, and none of its inputs differs. What only
// grew becomes noise, and the calls are classified again. Nothing is forgiven where inputs are
// bit-equal, where arguments differ, and where the difference is larger than 0.1 % (or four times
// what is explained for the dtype), but for results that carry on what cancelled before: noise that
// is as far apart, relative to its own size.
// Returns whether a row has become noise, with Reason::kEnlarged: then the calls are to be
// classified again.
bool ForgiveGrownRounding(Comparison* comparison);

}  // namespace msprobe::compare
