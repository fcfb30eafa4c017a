// All numbers that task free_benchmark judges by, in one table. They are those of the older tools;
// docs/howto/find-unstable-operations.md says what is different.
#pragma once

#include "engine/tensor/dtype.h"

namespace msprobe::stability {

struct Limits {
  DType dtype;
  double noise;      // what add_noise adds; magnitudes below its root count as this root
  double ratio;      // results whose ratio is above this number are inconsistent
  double cpu_error;  // beside the CPU: the largest relative error that is accepted
};
inline constexpr Limits kLimits[] = {
    {DType::kFloat64, 1e-16, 1.0002, 0x1p-14},
    {DType::kFloat32, 1e-8, 1.0002, 0x1p-14},
    {DType::kFloat16, 1e-6, 1.002, 0x1p-11},
    {DType::kBFloat16, 1e-4, 1.004, 0x1p-8},
};
// Of gradients, magnitudes below the root of this number count as the root.
inline constexpr double kGradientTolerance = 1e-3;
// Beside the CPU: the largest mean of relative errors with their signs, of many elements.
inline constexpr double kErrorBalance = 1e-4;
// A noise in the last bit may come out this many times larger before it counts as amplified.
inline constexpr double kNoiseGain = 2;
// The search for limits of single APIs: the first limit, and the factor of each change of limit -
// 1.
inline constexpr double kFirstLimit = 2.05, kLimitStep = 2;

// The row of a dtype; of a dtype that is not in the table, the row of float32.
constexpr const Limits& LimitsOf(DType dtype) {
  for (const Limits& limits : kLimits) {
    if (limits.dtype == dtype) return limits;
  }
  return kLimits[1];
}

}  // namespace msprobe::stability
