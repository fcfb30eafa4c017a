// The intermediate result of ComputeStats for a part of a tensor, how two neighbouring parts are
// combined, and how the result for the whole becomes Stats.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "engine/kernels/dtype_traits.h"
#include "engine/kernels/fingerprint.h"
#include "engine/kernels/stats.h"

namespace msprobe::kernels {

struct StatsNode {
  double sum = 0, sum_squares = 0;
  // Without meaning if the part holds a NaN.
  double max = -std::numeric_limits<double>::infinity(),
         min = std::numeric_limits<double>::infinity();
  int64_t nan = 0, pos_inf = 0, neg_inf = 0, zero = 0;
  // 64-bit integers only; unsigned ones with the top bit flipped, so that their order is int64's.
  int64_t int_max = std::numeric_limits<int64_t>::min(),
          int_min = std::numeric_limits<int64_t>::max();
  uint64_t hash = 0;  // FinishChunk() of the part's chunks, added up

  static StatsNode Combine(const StatsNode& a, const StatsNode& b) {
    StatsNode r;
    r.sum = a.sum + b.sum;
    r.sum_squares = a.sum_squares + b.sum_squares;
    r.max = std::max(a.max, b.max);
    r.min = std::min(a.min, b.min);
    r.nan = a.nan + b.nan;
    r.pos_inf = a.pos_inf + b.pos_inf;
    r.neg_inf = a.neg_inf + b.neg_inf;
    r.zero = a.zero + b.zero;
    r.int_max = std::max(a.int_max, b.int_max);
    r.int_min = std::min(a.int_min, b.int_min);
    r.hash = a.hash + b.hash;
    return r;
  }
};

inline constexpr uint64_t kTopBit = uint64_t{1} << 63;

// `elements` > 0.
inline Stats FinishStats(const StatsNode& node, DType dtype, int64_t elements) {
  Stats s;
  s.count = elements * ValuesPerElement(dtype);
  s.nan = node.nan;
  s.pos_inf = node.pos_inf;
  s.neg_inf = node.neg_inf;
  s.zero = node.zero;
  s.fingerprint = FinishFingerprint(node.hash, static_cast<unsigned>(dtype),
                                    static_cast<uint64_t>(elements) * DTypeSize(dtype));
  if (s.nan > 0) return s;
  const double count = static_cast<double>(s.count);
  s.max = node.max + 0.0;  // -0 becomes 0, so that the order of elements does not matter
  s.min = node.min + 0.0;
  s.mean = std::isnan(node.sum)
               ? Stats::kNaN
               : node.sum / count;  // infinities of both signs give the same NaN on each CPU
  s.norm = std::sqrt(node.sum_squares);
  if (IsWideInteger(dtype)) {
    const uint64_t flip = dtype == DType::kUInt64 ? kTopBit : 0;
    s.int_max = static_cast<int64_t>(static_cast<uint64_t>(node.int_max) ^ flip);
    s.int_min = static_cast<int64_t>(static_cast<uint64_t>(node.int_min) ^ flip);
  } else if (DTypeKindOf(dtype) != DTypeKind::kFloat && DTypeKindOf(dtype) != DTypeKind::kComplex) {
    s.int_max = static_cast<int64_t>(s.max);
    s.int_min = static_cast<int64_t>(s.min);
  }
  return s;
}

inline Stats EmptyStats(DType dtype) {
  Stats s;
  s.fingerprint = FinishFingerprint(0, static_cast<unsigned>(dtype), 0);
  return s;
}

}  // namespace msprobe::kernels
