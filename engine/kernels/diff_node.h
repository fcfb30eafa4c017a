// The intermediate result of ComputeDiff for a part of two tensors, how two neighbouring parts are
// combined, and how the result for the whole becomes a Diff.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "engine/kernels/diff.h"
#include "engine/kernels/dtype_traits.h"

namespace msprobe::kernels {

// How a pair of dtypes is compared.
enum class PairKind {
  kFloat,    // both fit float
  kDouble,   // both are read as double
  kInteger,  // both whole numbers, one of 64 bits: differences are taken before rounding to double
  kComplex,  // one of them is complex
};
constexpr bool IsWhole(DTypeKind kind) {
  return kind == DTypeKind::kSigned || kind == DTypeKind::kUnsigned || kind == DTypeKind::kBool;
}
inline PairKind PairKindOf(DType t, DType g) {
  const DTypeKind tk = DTypeKindOf(t), gk = DTypeKindOf(g);
  if (tk == DTypeKind::kComplex || gk == DTypeKind::kComplex) return PairKind::kComplex;
  if (IsWhole(tk) && IsWhole(gk) && (IsWideInteger(t) || IsWideInteger(g)))
    return PairKind::kInteger;
  return FitsFloat(t) && FitsFloat(g) ? PairKind::kFloat : PairKind::kDouble;
}

// The machine epsilon of result_type(t, g, float32), where integers count as float64.
inline double EpsilonOf(DType t, DType g) {
  const auto is_double = [](DType d) {
    return d == DType::kFloat64 || d == DType::kComplex128 || IsWhole(DTypeKindOf(d));
  };
  return DTypeEpsilon(is_double(t) || is_double(g) ? DType::kFloat64 : DType::kFloat32);
}

// The format in which differences of a dtype are measured.
inline FloatFormat FormatOf(DType dtype) {
  const bool is_float = DTypeKindOf(dtype) == DTypeKind::kFloat;
  return FactsOf(is_float ? dtype : DType::kFloat64).format;
}

// How a pair's ULP distance is measured.
enum class UlpKind { kNone, kDifference, kFormat };
inline UlpKind UlpKindOf(DType t, DType g) {
  const DTypeKind tk = DTypeKindOf(t), gk = DTypeKindOf(g);
  if (tk == DTypeKind::kComplex || gk == DTypeKind::kComplex) return UlpKind::kNone;
  if (IsWhole(tk) && IsWhole(gk)) return UlpKind::kDifference;
  return tk == DTypeKind::kBool || gk == DTypeKind::kBool ? UlpKind::kNone : UlpKind::kFormat;
}
// The coarser format: the one with fewer mantissa bits; of two with equally many, the one with the
// smaller range. An integer is measured in the format of the other side.
inline FloatFormat CoarserFormat(DType t, DType g) {
  if (IsWhole(DTypeKindOf(t))) return FormatOf(g);
  if (IsWhole(DTypeKindOf(g))) return FormatOf(t);
  const FloatFormat a = FormatOf(t), b = FormatOf(g);
  if (a.mantissa != b.mantissa) return a.mantissa < b.mantissa ? a : b;
  return a.min_exponent > b.min_exponent ? a : b;
}

// Rounds `x` to the nearest number of a format (ties to even) and returns the index of that number:
// 0 for zero, 1 for the smallest positive number, and so on; negative below zero. Beyond the
// largest number the index goes on as if the format had more exponents. `x` must be finite.
inline int64_t Ordinal(double x, FloatFormat format) {
  const double magnitude = std::fabs(x);
  const uint64_t bits = std::bit_cast<uint64_t>(magnitude);
  const int shift = 52 - format.mantissa;
  uint64_t rounded = bits;
  if (shift > 0)
    rounded = (bits + ((uint64_t{1} << (shift - 1)) - 1) + (bits >> shift & 1)) >> shift;
  int64_t ordinal = static_cast<int64_t>(rounded);
  if (format.min_exponent > -1022) {
    ordinal -= static_cast<int64_t>(format.min_exponent + 1022) << format.mantissa;
    const double per_step = PowerOfTwo(format.mantissa - format.min_exponent);
    if (magnitude < format.smallest_normal()) {
      ordinal = static_cast<int64_t>(magnitude * per_step + 0x1p52 -
                                     0x1p52);  // a whole number, ties to even
    }
  }
  return std::signbit(x) ? -ordinal : ordinal;
}
// Distance of two ordinals; up to 2^64 - 1.
inline uint64_t OrdinalDistance(int64_t a, int64_t b) {
  return a > b ? static_cast<uint64_t>(a) - static_cast<uint64_t>(b)
               : static_cast<uint64_t>(b) - static_cast<uint64_t>(a);
}

struct DiffNode {
  // Over elements where both sides are finite.
  double tt = 0, gg = 0, tg = 0, dd = 0;  // sums of |T|^2, |G|^2, TG, |T - G|^2
  double relative = 0;                    // sum of relative errors where G != 0
  double max_abs = 0, max_relative = 0;
  uint64_t max_ulp = 0;
  int64_t finite = 0, golden_zero = 0;
  // Over all elements. Elements that are non-finite of the same kind on both sides count as within
  // every limit.
  int64_t within_1e3 = 0, within_5e3 = 0;
  int64_t unequal = 0, nonfinite_target = 0, nonfinite_golden = 0, mismatch = 0;
  // The first chunk with an unequal element, with a non-finite mismatch, and with the largest |T -
  // G| > 0.
  int64_t first_chunk = -1, mismatch_chunk = -1, worst_chunk = -1;

  void SetChunk(int64_t chunk) {
    if (unequal > 0) first_chunk = chunk;
    if (mismatch > 0) mismatch_chunk = chunk;
    if (max_abs > 0) worst_chunk = chunk;
  }

  static DiffNode Combine(const DiffNode& a, const DiffNode& b) {
    DiffNode r;
    r.tt = a.tt + b.tt;
    r.gg = a.gg + b.gg;
    r.tg = a.tg + b.tg;
    r.dd = a.dd + b.dd;
    r.relative = a.relative + b.relative;
    r.max_abs = std::max(a.max_abs, b.max_abs);
    r.max_relative = std::max(a.max_relative, b.max_relative);
    r.max_ulp = std::max(a.max_ulp, b.max_ulp);
    r.finite = a.finite + b.finite;
    r.golden_zero = a.golden_zero + b.golden_zero;
    r.within_1e3 = a.within_1e3 + b.within_1e3;
    r.within_5e3 = a.within_5e3 + b.within_5e3;
    r.unequal = a.unequal + b.unequal;
    r.nonfinite_target = a.nonfinite_target + b.nonfinite_target;
    r.nonfinite_golden = a.nonfinite_golden + b.nonfinite_golden;
    r.mismatch = a.mismatch + b.mismatch;
    r.first_chunk = a.first_chunk >= 0 ? a.first_chunk : b.first_chunk;
    r.mismatch_chunk = a.mismatch_chunk >= 0 ? a.mismatch_chunk : b.mismatch_chunk;
    r.worst_chunk = b.max_abs > a.max_abs ? b.worst_chunk : a.worst_chunk;
    return r;
  }
};

// Fills everything but the indices and the values there. `count` > 0.
inline Diff FinishDiff(const DiffNode& node, UlpKind ulp, int64_t count) {
  Diff d;
  d.count = count;
  d.unequal = node.unequal;
  d.nonfinite_target = node.nonfinite_target;
  d.nonfinite_golden = node.nonfinite_golden;
  d.nonfinite_mismatch = node.mismatch;
  d.nonfinite_matched = count - node.finite - node.mismatch;
  d.ratio_within_1e3 = static_cast<double>(node.within_1e3) / static_cast<double>(count);
  d.ratio_within_5e3 = static_cast<double>(node.within_5e3) / static_cast<double>(count);
  if (node.finite == 0) return d;
  const double target = std::sqrt(node.tt), golden = std::sqrt(node.gg);
  d.euclidean = std::max(std::sqrt(node.dd), node.max_abs);  // the square may have underflowed
  const bool equal = node.unequal == node.mismatch;
  // When squares leave the range of a double (elements of float64 beyond 1e154, or all of them
  // below 1e-136), there is no cosine.
  constexpr double kLeast = 0x1p-900;
  const bool golden_is_zero = node.golden_zero == node.finite;
  const bool lost = !std::isfinite(node.tt + node.gg + node.dd) ||
                    (!golden_is_zero && node.gg < kLeast) ||
                    (golden_is_zero && node.max_abs > 0 && node.tt < kLeast);
  if (equal || (!lost && node.tg == node.tt && node.tg == node.gg)) {
    d.cosine = 1.0;  // equal tensors, zeros included: not 1 - 1e-16
  } else if (!lost && target != 0 && golden != 0) {
    d.cosine = std::clamp(node.tg / target / golden, -1.0, 1.0);
  }
  if (equal) {
    d.relative_l2 = 0;
  } else if (golden_is_zero) {
    d.relative_l2 = std::numeric_limits<double>::infinity();
  } else if (!lost) {
    d.relative_l2 = d.euclidean / golden;
  }
  d.max_abs_error = node.max_abs;
  d.max_rel_error = node.max_relative;
  const auto finite = static_cast<double>(node.finite);
  d.rmse = node.dd < kLeast ? d.euclidean / std::sqrt(finite) : std::sqrt(node.dd / finite);
  d.golden_zero = node.golden_zero;
  const int64_t nonzero = node.finite - node.golden_zero;
  if (nonzero > 0) d.mape = node.relative / static_cast<double>(nonzero);
  if (ulp != UlpKind::kNone) {
    d.max_ulp =
        static_cast<int64_t>(std::min<uint64_t>(node.max_ulp, std::numeric_limits<int64_t>::max()));
  }
  return d;
}

}  // namespace msprobe::kernels
