// Comparing dumps of recorded elements by relations, for tests that ask which call is named.
//
//   EXPECT_EQ(FirstOf(std::move(target), std::move(golden)), "Tensor.mul.0.forward");
#pragma once

#include <string>
#include <utility>

#include "tests/compare/divergence_values.h"
#include "tests/compare/recorded.h"

namespace msprobe::compare::test {

inline Elements Times(const Elements& x, float factor) {
  return Map(x, [factor](float v) { return v * factor; });
}

inline Elements Sum(const Elements& x, const Elements& y, float factor = 1) {
  Elements out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] + factor * y[i];
  return out;
}

inline Comparison Compared(Dump target, Dump golden) {
  return MustCompare(std::move(target), std::move(golden));
}

// The name of the first divergence; "none".
inline std::string FirstOf(Dump target, Dump golden) {
  return std::string(First(Compared(std::move(target), std::move(golden))));
}

}  // namespace msprobe::compare::test
