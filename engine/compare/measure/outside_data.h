// What the program brings into the recording: tensors that no recorded call made and that are no
// weights, such as batches.
//
//   ForEachOutsideRow(c, c.pairs.size(), [&](uint32_t row) { ...; return true; });
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Rows of inputs of the target's forward calls among the first `pairs`, in order; `body` answers
// whether to go on. Needs fingerprints; leaves without one are passed over.
void ForEachOutsideRow(const Comparison& comparison, size_t pairs,
                       const std::function<bool(uint32_t row)>& body);

// Integers from outside with the same statistics and other bits are other data (a batch in another
// order): rounding is no reason. As long as all integers and booleans that recorded calls made are
// the same: a choice that rounding turned may go on in values whose making was not recorded.
void JudgeOutsideIntegers(Comparison* comparison);

}  // namespace msprobe::compare
