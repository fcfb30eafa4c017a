// Measures and judges every row of a comparison, in parallel.
#pragma once

#include "engine/compare/compare.h"
#include "engine/compare/comparison.h"

namespace msprobe {

// From comparison->pairs and rows fills measures, in tensor mode also diffs, and notes for files that could not be read.
void MeasureRows(const CompareOptions& options, Comparison* comparison);

// Values summed into one element of the call's outputs, as far as name and shapes tell: a matmul's inner dimension, a reduction's
// ratio of input to output; 0 when they do not.
double SummedTerms(const Dump& dump, const Record& record);

// The call returns memory that nobody wrote: empty, empty_like, new_empty, ...
bool ReturnsUninitialised(std::string_view api);

}  // namespace msprobe
