// ComputeAccuracy in the simplest way: the definition that the vector kernel is tested against, bit
// for bit.
#pragma once

#include <vector>

#include "engine/kernels/accuracy_node.h"
#include "engine/kernels/stats_scalar.h"

namespace msprobe::kernels {

// `n` elements from `dp` and `gp`.
inline AccuracyNode ChunkAccuracyScalar(DType device, const uint8_t* dp, DType golden,
                                        const uint8_t* gp, int64_t n,
                                        const AccuracyFactors& factors) {
  const AccuracyLimits& limits = factors.limits;
  AccuracyNode node;
  node.count = n;
  std::array<double, 16> dd{}, gg{}, dg{}, squares{}, relatives{}, ulps{};
  for (int64_t i = 0; i < n; ++i) {
    const double d = ElementToDouble(device, dp + i * static_cast<int64_t>(DTypeSize(device)));
    const double g = ElementToDouble(golden, gp + i * static_cast<int64_t>(DTypeSize(golden)));
    const double power = factors.Power(g);
    const double r = factors.Round(g, power);
    if (!std::isfinite(d) || !(std::fabs(r) <= factors.largest)) {
      node.AddNonfinite(d, g, factors);
      continue;
    }
    const size_t lane = static_cast<size_t>(i % 16);
    const double size = std::fabs(g), error = std::fabs(d - g);
    ++node.finite;
    node.max_device = std::max(node.max_device, std::fabs(d));
    node.max_golden = std::max(node.max_golden, size);
    node.max_error = std::max(node.max_error, error);
    dd[lane] += d * d;
    gg[lane] += g * g;
    dg[lane] += d * g;
    node.above += d > r;
    node.below += d < r;
    node.unequal += d != r;
    node.inexact += d != g;
    const double relative = error / (size + limits.epsilon);
    node.within_1e2 += relative < 0.01;
    node.within_1e3 += relative < 0.001;
    node.within_1e4 += relative < 0.0001;
    const double ulp = error * AccuracyFactors::Inverse(power) * factors.ulp_up;
    node.max_ulp = std::max(node.max_ulp, ulp);
    node.ulp_above += ulp > limits.ulp_limit;
    ulps[lane] += ulp;
    if (size <= limits.small_value) {
      ++node.small;
      node.small_failures += error > limits.small_atol;
      continue;
    }
    ++node.normal;
    node.relative_failures += relative > limits.rtol;
    node.max_relative = std::max(node.max_relative, relative);
    relatives[lane] += relative;
    squares[lane] += error * error;
  }
  node.dd = AddLanesScalar(dd);
  node.gg = AddLanesScalar(gg);
  node.dg = AddLanesScalar(dg);
  node.squared_errors = AddLanesScalar(squares);
  node.sum_relative = AddLanesScalar(relatives);
  node.sum_ulp = AddLanesScalar(ulps);
  return node;
}

inline Accuracy ComputeAccuracyScalar(const TensorView& device, const TensorView& golden,
                                      const AccuracyLimits& limits) {
  const int64_t count = device.numel();
  if (count == 0) return {};
  std::vector<uint8_t> d(static_cast<size_t>(count) * DTypeSize(device.dtype)),
      g(static_cast<size_t>(count) * DTypeSize(golden.dtype));
  CopyContiguous(device, d.data());
  CopyContiguous(golden, g.data());
  const AccuracyFactors factors(limits);
  return FoldScalar<AccuracyNode>(0, (count - 1) / kChunkElements + 1, [&](int64_t chunk) {
    const int64_t first = chunk * kChunkElements;
    const auto at = [&](DType dtype) { return first * static_cast<int64_t>(DTypeSize(dtype)); };
    return ChunkAccuracyScalar(device.dtype, d.data() + at(device.dtype), golden.dtype,
                               g.data() + at(golden.dtype), std::min(kChunkElements, count - first),
                               factors);
  });
}

}  // namespace msprobe::kernels
