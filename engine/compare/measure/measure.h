// Measures and judges every row of a comparison, in parallel.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/compare/model/compare_options.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// From comparison->pairs and rows fills measures, in tensor mode also diffs, and notes for files
// that could not be read.
void MeasureRows(const CompareOptions& options, Comparison* comparison);

// Comparison::coarse_dtype where a row is to be judged by it, else "". Not the results of a call
// that was made with other plain arguments: their error has a reason of its own.
std::string_view CoarseDTypeFor(const Comparison& comparison, const RecordPair& pair, uint32_t row);

}  // namespace msprobe::compare
