// One chunk of ComputeRatio in the simplest way: the definition that the vector kernel is tested
// against.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "engine/kernels/ratio.h"

namespace msprobe::kernels {

// What is known of a part of a tensor.
struct RatioNode {
  RatioStats stats;
  static RatioNode Combine(const RatioNode& a, const RatioNode& b) {
    return {{a.stats.count + b.stats.count, a.stats.different + b.stats.different,
             a.stats.nan + b.stats.nan, a.stats.inf + b.stats.inf, a.stats.flips + b.stats.flips,
             std::max(a.stats.ratio, b.stats.ratio), std::max(a.stats.error, b.stats.error),
             a.stats.signed_error + b.stats.signed_error}};
  }
};

// Signed errors are summed in eight lanes, element i in lane i % 8: the order of additions is the
// same for vectors of every width.
inline RatioNode RatioOfChunkScalar(const double* target, const double* golden, int64_t n,
                                    double floor) {
  RatioStats s{.count = n};
  std::array<double, 8> lanes{};
  for (int64_t i = 0; i < n; ++i) {
    const double t = target[i], g = golden[i];
    const bool both_nan = std::isnan(t) && std::isnan(g);
    if (t == g || both_nan) continue;
    ++s.different;
    if (std::isnan(t) || std::isnan(g)) {
      ++s.nan;
    } else if (std::isinf(t) != std::isinf(g)) {
      ++s.inf;
    } else if (std::isinf(t)) {
      ++s.flips;  // plus and minus infinity
    } else {
      s.flips += (t < 0) != (g < 0) && std::abs(t) * std::abs(g) > floor * floor;
      const double a = std::max(std::abs(t), floor), b = std::max(std::abs(g), floor);
      // Both are 0 when the magnitudes are below the floor, or equal.
      if (a != b) s.ratio = std::max(s.ratio, a > b ? a / b : b / a);
      const double error = (t - g) / std::max(std::abs(g), 1.0);
      s.error = std::max(s.error, std::abs(error));
      lanes[static_cast<size_t>(i % 8)] += error;
    }
  }
  s.signed_error = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
                   ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  return {s};
}

}  // namespace msprobe::kernels
