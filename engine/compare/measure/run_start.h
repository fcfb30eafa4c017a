// Whether two runs started from the same weights, the same data and the same settings.
//
//   CompareRunStarts(&comparison);                  // fills comparison.run_start
//   Print("started from {}", comparison.run_start.weights);
#pragma once

#include <cstddef>

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// How many processes the run of a dump had, as its header says; 0: not known.
size_t ProcessesOf(const Dump& dump);

// Call it when the rows are measured and the first divergence is found. Data are the tensors of
// outside_data.h up to the first divergence; after it everything may differ.
void CompareRunStarts(Comparison* comparison);

}  // namespace msprobe::compare
