// The moments of a tensor: what its recorded statistics say of its elements. Two tensors are
// compared by them where no bits are equal.
//
//   const Moments a = MomentsOf(dump, 7), b = MomentsOf(dump, 8);
//   const double error = Distance(a, b, /*terms=*/0);  // 0.02: off by 2 % of the size of b
//   const Moments whole = Join(std::vector{a, b});     // of all elements together
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "engine/model/table.h"

namespace msprobe::compare::relations {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Half of the last bit of a double.
inline constexpr double kDouble = FactsOf(DType::kFloat64).format.roundoff();
// Statistics of float32 tensors are written with 24 bits.
inline constexpr double kDigits = 0x1p-22;

// Without the extremes of the tensor (kernels/rest_stats.h), where its dump counts them: n is then
// the number of the other elements, and `mean` is 0.
struct Moments {
  bool known = false;  // false: nothing was recorded
  // Of a sum over ranks: of its elements the mean is known, the others are bounds.
  bool mean_only = false;
  int64_t n = 0;
  double high = 0, low = 0, mean = 0, norm = 0;
  int64_t not_finite = 0, extremes = 0;
  int64_t zeros = 0;  // -1: they were not counted

  double Rms() const;   // root of the mean square; 0: no elements, or not finite
  double Size() const;  // the largest absolute value
};

Moments MomentsOf(const Dump& dump, int32_t leaf);

// The moments of all elements of `parts`, which are known.
Moments Join(std::span<const Moments> parts);

// Those of `factor` times the elements.
Moments Times(double factor, Moments m);

// The largest difference of two moments, relative to the size of b, at least `terms` (the size of
// the numbers that were added up to b). 0: equal; infinity: other numbers of elements, NaN or
// extremes.
double Distance(const Moments& a, const Moments& b, double terms);

// Whether the moments allow that b has the elements of a in another order.
bool SameElements(const Moments& a, const Moments& b);
inline uint64_t MixKeys(uint64_t h, uint64_t x) { return (h ^ x) * 0x9e3779b97f4a7c15 + (h >> 29); }
// Equal for tensors that may have the same elements.
uint64_t ElementsKey(const Moments& m);

}  // namespace msprobe::compare::relations
