// Moving data does not round: where a call that only moves elements was given equal bits and
// returned other bits, the difference is an error and no rounding.
#pragma once

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Results of such calls that are within rounding become `differs` with Reason::kMoved. All tensors
// that go into the call must have equal fingerprints, checksums or elements: equal statistics alone
// do not say that the bits are equal.
//
// The measures of all rows must be filled.
void JudgeMovedData(Comparison* comparison);

}  // namespace msprobe::compare
