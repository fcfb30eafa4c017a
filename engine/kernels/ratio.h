// How much the results of an operation that ran twice differ, element by element, as a ratio.
#pragma once

#include <cstdint>

#include "engine/base/threads.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe::kernels {

struct RatioStats {
  int64_t count = 0;      // elements
  int64_t different = 0;  // elements that are not the same number; NaN and NaN are the same
  int64_t nan = 0;        // elements that are NaN on one side only
  int64_t inf = 0;        // elements that are infinite on one side only, and NaN on none
  int64_t flips = 0;      // elements whose sign differs, and whose product is below -floor^2
  // Of the elements that are finite on both sides:
  double ratio = 1;         // largest of max(|t|, floor) / max(|g|, floor) and its inverse
  double error = 0;         // largest of |t - g| / max(|g|, 1)
  double signed_error = 0;  // sum of (t - g) / max(|g|, 1)

  bool operator==(const RatioStats&) const = default;
};

// Both views have the same number of elements, which are paired in logical order; the dtypes may
// differ. `floor` >= 0: smaller magnitudes count as this one. With floor 0, a zero beside another
// number has the ratio infinity. Complex dtypes and pairs of 4-bit values are not measured: the
// result has count 0. The result is the same on every SIMD target and for any number of threads.
//
//   const RatioStats r = ComputeRatio(again, first, 1e-4);
//   if (r.nan + r.inf + r.flips > 0 || r.ratio > 1.0002) Report();
RatioStats ComputeRatio(const TensorView& target, const TensorView& golden, double floor,
                        ThreadPool* pool = nullptr);

}  // namespace msprobe::kernels
