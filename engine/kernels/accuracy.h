// One pass over a device's result and the golden result: every quantity that the accuracy pre-check
// judges by.
#pragma once

#include <cstdint>

#include "engine/base/status.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe {
class ThreadPool;
}
namespace msprobe::kernels {

// What ComputeAccuracy counts against. Which limits belong to which API and dtype:
// engine/accuracy/standards.h.
struct AccuracyLimits {
  // The relative error of an element is |D - G| / (|G| + epsilon).
  double epsilon = DTypeEpsilon(DType::kFloat32);
  double small_value = 0x1p-20;  // a finite pair with |G| <= small_value is small, the others are
                                 // normal
  double small_atol = 0x1p-30;   // a small pair fails when |D - G| > small_atol
  double rtol = 0x1p-20;         // a normal pair fails when its relative error > rtol
  double ulp_limit = 1;          // ULP errors above this are counted
  // The float format to which the golden is rounded before it is compared for equality and sign of
  // the error, and which decides whether the golden is finite.
  DType golden_as = DType::kFloat32;
  DType ulp_of = DType::kFloat32;  // the format whose unit in the last place is the unit of errors
  // Where G == 0: true takes the unit of 1.0 (a rule of the older tools, which hides errors); false
  // the smallest number of the format.
  bool unit_of_one_at_zero = false;
};

// D is a device value, G the golden value; R is G rounded to `golden_as`. A pair is finite when D
// and R are. Sums and counts are over finite pairs unless the comment says otherwise.
struct Accuracy {
  int64_t count = 0;   // all pairs
  int64_t finite = 0;  // of them
  // Of the count - finite other pairs:
  int64_t both_nan = 0;
  int64_t same_infinity = 0;       // D == R, infinite
  int64_t nonfinite_failures = 0;  // not both NaN, and after clipping D and R to the range of the
                                   // format the relative error is above rtol
  int64_t unclipped_failures = 0;  // by a rule of the older tools: the error is divided by G before
                                   // clipping, so that an infinite golden passes against any
                                   // number; an error beyond the format is a failure
  int64_t nan_errors = 0;          // D - G is NaN
  int64_t infinite_errors = 0;     // D - G is infinite
  int64_t infinite_golden = 0;     // G itself

  double max_device = 0, max_golden = 0;  // largest |D|, |G|
  double dd = 0, gg = 0, dg = 0;          // sums of D^2, G^2, DG
  double max_error = 0;                   // largest |D - G| of all pairs where it is a number
  int64_t within_1e2 = 0, within_1e3 = 0, within_1e4 = 0;  // pairs with a relative error below;
                                                           // of all pairs where it is a number
  int64_t above = 0, below = 0;                            // D > R, D < R, of all pairs
  int64_t unequal = 0;                                     // D != R of all pairs; NaN equals NaN
  int64_t inexact = 0;                                     // D != G of all pairs; NaN equals NaN

  int64_t small = 0, small_failures = 0;
  int64_t normal = 0, relative_failures = 0;
  double squared_errors = 0;                  // sum of |D - G|^2 of normal pairs
  double max_relative = 0, sum_relative = 0;  // of normal pairs
  double max_ulp = 0, sum_ulp = 0;            // |D - G| in units of the last place of G
  int64_t ulp_above = 0;                      // pairs with more than ulp_limit

  // sum DG / (|D||G|), at most 1 in size. NaN when a side is zero everywhere, when no pair is
  // finite, or when squares leave the range of a double.
  double Cosine() const;
};

// Whether ComputeAccuracy takes the dtype: float64, float32, float16, bfloat16, and the fp8 formats
// with a mantissa.
bool HasAccuracy(DType dtype);

// Two tensors of such dtypes; the golden one has the higher precision. They are of
// equal element count (the caller decides whether shapes agree), any strides. Deterministic as
// ComputeStats. Errors: kInvalidArgument for other counts, kUnsupported for other dtypes.
//
//   AccuracyLimits limits{.golden_as = DType::kBFloat16, .ulp_of = DType::kBFloat16};
//   MSPROBE_ASSIGN_OR_RETURN(Accuracy a, ComputeAccuracy(device, golden, limits));
//   const bool exact = a.unequal == 0;
Result<Accuracy> ComputeAccuracy(const TensorView& device, const TensorView& golden,
                                 const AccuracyLimits& limits, ThreadPool* pool = nullptr);

}  // namespace msprobe::kernels
