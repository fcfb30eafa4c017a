// Two programs that compute the same on tensors of other shapes: decoding with a cache of keys and
// values takes the last token where the other run takes all of them; a loop over times takes slices of
// what the other run takes whole. A value and its part are in different records, so no rule on regions
// sees that they agree. What both runs make of them shows it.
//
//   if (ForgiveOtherShapes(&comparison)) ClassifyCalls(&comparison);   // measured and judged
#pragma once

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Where every call that differs has tensors of other shapes, no value of equal shape differs in them,
// and the step ends with a call that makes a new value of equal shape which agrees, the differing rows
// become unknown with Reason::kRewritten, and their calls part of a rewrite. Otherwise nothing is
// changed. Returns whether any row was changed.
bool ForgiveOtherShapes(Comparison* comparison);

}  // namespace msprobe::compare
