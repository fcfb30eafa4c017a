// Whether two runs began from the same weights, the same data and the same settings.
//
//   CompareRunStarts(&comparison);                  // fills comparison.run_start
//   Print("began from {}", comparison.run_start.weights);
#pragma once

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Needs rows measured and the first divergence found. Data are the tensors that calls take and that
// no recorded call made: they are looked at up to the first divergence, beyond which everything may
// differ.
void CompareRunStarts(Comparison* comparison);

}  // namespace msprobe::compare
