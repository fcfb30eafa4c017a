// Small facts about dtypes and values that the kernels and their scalar twins agree on.
#pragma once

#include <algorithm>
#include <cmath>

#include "engine/tensor/dtype.h"

namespace msprobe::kernels {

// Whether a float holds every value of the dtype exactly.
constexpr bool FitsFloat(DType dtype) { return DTypeSize(dtype) <= 2 || dtype == DType::kFloat32; }
constexpr bool IsWideInteger(DType dtype) {
  return dtype == DType::kInt64 || dtype == DType::kUInt64;
}
constexpr int ValuesPerElement(DType dtype) { return dtype == DType::kFloat4E2M1X2 ? 2 : 1; }

// |re + i im| without overflow or underflow on the way: parts far from 1 are scaled by a power of
// two. NaN wins over infinity.
inline double Modulus(double re, double im) {
  const double a = std::fabs(re), b = std::fabs(im);
  const double larger = a < b ? b : a;
  const double scale = larger > 0x1p500 ? 0x1p-600 : larger < 0x1p-400 ? 0x1p600 : 1.0;
  const double back = larger > 0x1p500 ? 0x1p600 : larger < 0x1p-400 ? 0x1p-600 : 1.0;
  const double x = a * scale, y = b * scale;
  return std::sqrt(x * x + y * y) * back;
}

}  // namespace msprobe::kernels
