// Measures and judges every row of a comparison, in parallel.
#pragma once

#include "engine/compare/compare.h"
#include "engine/compare/comparison.h"

namespace msprobe {

// From comparison->pairs and rows fills measures, in tensor mode also diffs, and notes for files
// that could not be read.
void MeasureRows(const CompareOptions& options, Comparison* comparison);

}  // namespace msprobe
