// Roundings of float formats, on elements of float64: the size of one, and tensors that are off by
// some.
//
//   UnitInLastPlace(1.5, *FormatOf(DType::kBFloat16));    // 2^-7
//   RoundElements(view, *FormatOf(DType::kFloat16));      // true: an element was no float16
//   MoveByRoundings(view, {.seed = 3, .relative = 0x1p-24});
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>

#include "engine/tensor/tensor_view.h"

namespace msprobe::accuracy {

// Of float64, float32, float16 and bfloat16.
std::optional<FloatFormat> FormatOf(DType dtype);

// The distance between the numbers of the format at `x`, which is finite.
inline double UnitInLastPlace(double x, const FloatFormat& format) {
  const int exponent = static_cast<int>((std::bit_cast<uint64_t>(x) >> 52) & 0x7ff) - 1023;
  const int unit = std::max(exponent, format.min_exponent) - format.mantissa + 1023;
  return unit <= 0 ? 0x1p-1074 : std::bit_cast<double>(static_cast<uint64_t>(unit) << 52);
}

// `x` rounded to the format; infinite beyond the largest number.
double Rounded(double x, const FloatFormat& format);

// Rounds the elements of a contiguous view of float64 in place. Whether one of them changed.
bool RoundElements(const TensorView& view, const FloatFormat& format);

struct RoundingSteps {
  uint64_t seed = 0;    // of the signs: each element goes up or down
  double relative = 0;  // of the element's magnitude
  // The elements stand for numbers of this format, to which they have not been rounded.
  std::optional<FloatFormat> unrounded = std::nullopt;
};
// Moves the elements of a contiguous view of float64 in place. Zeros, NaN and infinities stay.
void MoveByRoundings(const TensorView& view, const RoundingSteps& steps);

}  // namespace msprobe::accuracy
