// What a recorder writes of some elements, for tests that need numbers which belong together.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/compare/dump_builder.h"

namespace msprobe::compare::test {

using Elements = std::vector<float>;

inline Elements Random(int n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Elements x(static_cast<size_t>(n));
  for (float& each : x) each = normal(random);
  return x;
}

inline Elements Map(const Elements& x, const std::function<float(float)>& f) {
  Elements out(x.size());
  std::transform(x.begin(), x.end(), out.begin(), f);
  return out;
}

// `shape`: "[8, 8]"; "": a vector.
inline Tensor Recorded(const Elements& x, std::string shape = "") {
  Tensor t;
  double sum = 0, squares = 0;
  uint64_t hash = 14695981039346656037U;
  for (const float each : x) {
    sum += each;
    squares += double{each} * each;
    hash = (hash ^ std::hash<float>()(each)) * 1099511628211U;
  }
  t.max = *std::max_element(x.begin(), x.end());
  t.min = *std::min_element(x.begin(), x.end());
  t.mean = sum / static_cast<double>(x.size());
  t.norm = std::sqrt(squares);
  t.shape = shape.empty() ? "[" + std::to_string(x.size()) + "]" : std::move(shape);
  t.fingerprint = std::to_string(hash);
  return t;
}

}  // namespace msprobe::compare::test
