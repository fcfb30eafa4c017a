// Measures and judges every row of a comparison, in parallel.
#pragma once

#include "engine/compare/model/compare_options.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Reads comparison->pairs and rows, and fills measures; in tensor mode also diffs, and notes for
// files that could not be read.
void MeasureRows(const CompareOptions& options, Comparison* comparison);

}  // namespace msprobe::compare
