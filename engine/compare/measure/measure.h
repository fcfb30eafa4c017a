// Measures and judges every row of a comparison, in parallel.
#pragma once

#include <cstdint>

#include "engine/compare/model/compare_options.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Reads comparison->pairs and rows, and fills measures; in tensor mode also diffs, and notes for
// files that could not be read.
void MeasureRows(const CompareOptions& options, Comparison* comparison);

// Comparison::coarse_dtype when a row is to be judged by that dtype, else an empty type. The results
// of a call that was made with other plain arguments are not judged by it: their error has another
// reason.
ElementType CoarseDTypeFor(const Comparison& comparison, const RecordPair& pair, uint32_t row);

}  // namespace msprobe::compare
