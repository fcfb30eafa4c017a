// Outside data: tensors that no recorded call made and that are not weights, such as a batch that
// the program read from a file.
//
//   ForEachOutsideRow(c, c.pairs.size(), [&](uint32_t row) { ...; return true; });
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Calls `body` for each row of outside data among the inputs of the target's forward calls in the
// first `pairs` pairs, in order, until `body` returns false. Leaves without a fingerprint are
// passed over.
void ForEachOutsideRow(const Comparison& comparison, size_t pairs,
                       const std::function<bool(uint32_t row)>& body);

// Judges integers from outside that have equal statistics and different bits: they differ (a batch
// in another order), because integers are not rounded. Only when all integers and booleans that
// recorded calls made are equal: otherwise rounding may have changed a choice (an argmax), and the
// integers may follow from that choice through a call that was not recorded.
void JudgeOutsideIntegers(Comparison* comparison);

}  // namespace msprobe::compare
