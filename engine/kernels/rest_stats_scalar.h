// One chunk of ComputeRestStats in the simplest way: the definition that the vector kernel is
// tested against.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace msprobe::kernels {

inline constexpr double kExtreme = 8192, kRestBelow = 2048;

// What is known of a part of a tensor. Squares are summed in eight lanes, element i in lane i % 8:
// the order of additions is the same for vectors of every width.
struct RestNode {
  int64_t rest = 0, extremes = 0, between = 0;  // elements
  double max = -INFINITY, min = INFINITY, squares = 0;
  static RestNode Combine(const RestNode& a, const RestNode& b) {
    return {a.rest + b.rest,        a.extremes + b.extremes, a.between + b.between,
            std::max(a.max, b.max), std::min(a.min, b.min),  a.squares + b.squares};
  }
};

inline double SumOfLanes(const std::array<double, 8>& lane) {
  return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

inline RestNode RestOfChunkScalar(const double* values, int64_t n) {
  RestNode node;
  std::array<double, 8> lanes{};
  for (int64_t i = 0; i < n; ++i) {
    const double size = std::abs(values[i]);
    if (size >= kExtreme) {
      ++node.extremes;
    } else if (size < kRestBelow) {
      ++node.rest;
      node.max = std::max(node.max, values[i]);
      node.min = std::min(node.min, values[i]);
      lanes[static_cast<size_t>(i % 8)] += values[i] * values[i];
    } else {
      ++node.between;
    }
  }
  node.squares = SumOfLanes(lanes);
  return node;
}

}  // namespace msprobe::kernels
