// Statistics of the elements that are left when a tensor's extremes are taken away: masks put the
// smallest number of a dtype, -inf, -1e4 or -1e9 into scores, and beside it every other number and
// every error is nothing.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/kernels/stats.h"

namespace msprobe::kernels {

struct RestStats {
  int64_t extremes = 0;               // number of elements that were taken away
  double max = 0, min = 0, norm = 0;  // of the others
};

// An extreme is an infinity or a number of a magnitude of 8192 or more. The other elements must be
// below 2048, so that no element is near the limit, where rounding could decide. nullopt: the
// tensor has no extremes, or nothing else, or elements in between, or NaN, or is not of a float
// dtype. `all`: ComputeStats of the same view; a tensor without extremes is not read again. The
// result is the same on every SIMD target and for any number of threads.
//
//   const Stats s = ComputeStats(view);
//   if (const auto rest = ComputeRestStats(view, s)) Print(rest->max);
std::optional<RestStats> ComputeRestStats(const TensorView& view, const Stats& all,
                                          ThreadPool* pool = nullptr);
// Which elements count in the sketch of a tensor that has this rest.
inline SketchOf SketchOfRest(const std::optional<RestStats>& rest) {
  return rest ? SketchOf::kRest : SketchOf::kFinite;
}

}  // namespace msprobe::kernels
