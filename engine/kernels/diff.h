// One pass over two tensors: how far the target is from the golden.
#pragma once

#include <cstdint>
#include <limits>

#include "engine/base/status.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe {
class ThreadPool;
}
namespace msprobe::kernels {

// T is a target value, G a golden value, both converted exactly to double (complex: |T - G|, moduli
// for magnitudes). Elements where either side is not finite are left out of every sum and extremum
// below, and counted instead.
struct Diff {
  static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

  int64_t count = 0;    // elements compared
  int64_t unequal = 0;  // T != G as numbers; NaN equals NaN of any payload, 0 equals -0, Inf equals
                        // Inf of the same sign
  int64_t nonfinite_target = 0, nonfinite_golden = 0;
  int64_t nonfinite_mismatch = 0;  // not the same kind on both sides (NaN, +Inf, -Inf, finite)
  int64_t nonfinite_matched = 0;   // of one kind, and not finite, on both sides

  // Cosine and relative_l2 of unequal tensors are NaN where the squares leave the range of a double
  // (elements of float64 beyond 1e154, or all of them below 1e-136); euclidean may be infinite
  // then.
  double cosine = kNaN;         // sum TG / (|T||G|); 1 when both are all zero, NaN when only one is
  double euclidean = kNaN;      // |T - G|
  double relative_l2 = kNaN;    // |T - G| / |G|; 0 when both are zero, inf when only G is
  double max_abs_error = kNaN;  // max |T - G|
  // Relative error of an element: |T - G| / |G|; where G == 0 both sides get +eps of result_type(T,
  // G, float32) first (shared rule of the older tools: 0 against 0 gives 0).
  double max_rel_error = kNaN;
  double ratio_within_1e3 =
      kNaN;  // "One Thousandth Err Ratio": share of all elements with relative error < 0.001
  double ratio_within_5e3 = kNaN;  // < 0.005
  int64_t golden_zero = 0;         // finite pairs with G == 0
  double rmse = kNaN;              // sqrt(mean (T - G)^2)
  double mape = kNaN;              // mean |T - G| / |G| over elements with G != 0
  // Distance in representable numbers of the coarser of the two dtypes (after rounding both to it);
  // 0 for integers' equality, plain difference for integers. -1 when not defined (complex, or a
  // bool against a float).
  int64_t max_ulp = -1;

  int64_t first_index = -1;  // logical index of the first unequal element, -1 if none
  int64_t worst_index = -1;  // of the largest |T - G|; a non-finite mismatch is worse than any
                             // number; -1 if none unequal
  double worst_target = kNaN, worst_golden = kNaN;
};

// Views of equal element count (the caller decides whether shapes agree); any two dtypes.
// Deterministic as ComputeStats. Errors: kInvalidArgument when the counts differ.
//
//   MSPROBE_ASSIGN_OR_RETURN(Diff d, ComputeDiff(target, golden));
Result<Diff> ComputeDiff(const TensorView& target, const TensorView& golden,
                         ThreadPool* pool = nullptr);

// The same, and Crc32() of both (digest.h), while their elements are in the cache.
struct Crc32Pair {
  uint32_t target = 0, golden = 0;
};
Result<Diff> ComputeDiff(const TensorView& target, const TensorView& golden, ThreadPool* pool,
                         Crc32Pair* checksums);

}  // namespace msprobe::kernels
