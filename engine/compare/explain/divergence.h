// Names the first wrong number and the operation that introduced it.
//
// Candidates, in execution order: calls that introduce a difference; the first call whose input
// differs although nothing recorded before it does (weights, data, or an operation nobody
// recorded); calls with a partner missing whose output feeds the first difference; calls that
// differ with unknown inputs. Where noise merely grows until it crosses the limit, the call with
// the largest jump is named, with low confidence.
//
// confidence = pair x inputs x jump x size x before, each 0 to 1:
//   pair    how sure the pair is (RecordPair::confidence)
//   inputs  1 equal, 0.9 within rounding, 0.4 not recorded
//   jump    inputs within rounding only: 1 - 1/j, at least 0.1, with
//           j = output severity / input severity, over 100 more for calls that amplify by nature
//   size    1 - 0.5/s with s = output severity / what rounding explains: just over counts half
//   before  1 - 0.5 x share of earlier calls that could not be judged or have no partner
// A module with recorded children none of which shows the error counts 0.8: the cause is inside,
// and was not recorded.
#pragma once

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// The pair of the first call with a wrong number, whatever introduced it; -1: none. Classes must be
// there.
int32_t FirstWrongCall(const Comparison& comparison);

// Fills comparison->first and runners_up (at most five); measures and classes must be there.
void FindFirstDivergence(Comparison* comparison);

}  // namespace msprobe::compare
