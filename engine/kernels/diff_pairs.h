// One pair of elements, compared in the simplest way. The scalar twin uses this for all elements.
// The kernel uses it to find the first and the worst element in the chunk that holds them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "engine/kernels/diff_node.h"
#include "engine/kernels/dtype_traits.h"

namespace msprobe::kernels {

// Values as doubles; real dtypes have imaginary parts 0. For PairKind::kInteger `exact_distance` is
// |T - G|, else negative.
struct Pair {
  double t = 0, ti = 0, g = 0, gi = 0;
  double exact_distance = -1;

  bool TargetFinite() const { return std::isfinite(t) && std::isfinite(ti); }
  bool GoldenFinite() const { return std::isfinite(g) && std::isfinite(gi); }
  bool Finite() const { return TargetFinite() && GoldenFinite(); }
  bool Same() const {
    if (exact_distance >= 0) return exact_distance == 0;
    const bool nan_t = std::isnan(t) || std::isnan(ti), nan_g = std::isnan(g) || std::isnan(gi);
    return nan_t || nan_g ? nan_t && nan_g : t == g && ti == gi;
  }
  // |T - G|; both finite.
  double Distance(PairKind kind) const {
    if (exact_distance >= 0) return exact_distance;
    return kind == PairKind::kComplex ? Modulus(t - g, ti - gi) : std::fabs(t - g);
  }
};

// Element `i` of any integer or bool dtype.
inline __int128 LoadWhole(DType dtype, const uint8_t* p, int64_t i) {
  const auto load = [&](auto value) -> __int128 {
    std::memcpy(&value, p + i * static_cast<int64_t>(sizeof(value)), sizeof(value));
    return value;
  };
  switch (dtype) {
    case DType::kInt64:
      return load(int64_t{});
    case DType::kUInt64:
      return load(uint64_t{});
    case DType::kInt32:
      return load(int32_t{});
    case DType::kUInt32:
      return load(uint32_t{});
    case DType::kInt16:
      return load(int16_t{});
    case DType::kUInt16:
      return load(uint16_t{});
    case DType::kInt8:
      return load(int8_t{});
    case DType::kBool:
      return load(uint8_t{}) != 0;
    default:
      return load(uint8_t{});
  }
}
// |a - b|, saturated: uint64 against a negative number may need 65 bits.
inline uint64_t WholeDistance(__int128 a, __int128 b) {
  const __int128 d = a > b ? a - b : b - a;
  return d >> 64 != 0 ? ~uint64_t{0} : static_cast<uint64_t>(d);
}

}  // namespace msprobe::kernels
