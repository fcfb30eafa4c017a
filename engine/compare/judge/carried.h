// Values that cancelled: a sum of large terms that is nearly zero is judged by the size of its terms, so
// that it is noise although little of it agrees. What a call makes of such a value (-x, x / n) agrees as
// little, and its own record does not have the terms.
//
//   double carried = 0;
//   for (uint32_t row : inputs) carried = std::max(carried, CarriedBy(comparison, row));
//   if (IsCarriedOn(comparison, output, carried)) Forgive(output);
#pragma once

#include <cstdint>

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// By how much the two tensors of a row are apart, relative to their own size, by maximum, minimum and
// norm. 0: one side has no statistics.
double ApartOf(const Comparison& comparison, uint32_t row);

// ApartOf a row that is noise, and by which the size that it was judged by is several times its own;
// 0 for all other rows.
double CarriedBy(const Comparison& comparison, uint32_t row);

// Whether a row is no further apart than a few times `carried`, the largest that goes into its call.
bool IsCarriedOn(const Comparison& comparison, uint32_t row, double carried);

// Whether each result of a pair of calls that differs is carried on from what the call takes.
bool OnlyCarriesOn(const Comparison& comparison, const RecordPair& pair);

}  // namespace msprobe::compare
