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

}  // namespace msprobe::compare
