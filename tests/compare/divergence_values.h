// Values and names for tests of where a difference begins.
#pragma once

#include <string_view>

#include "engine/compare/explain/evidence.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::compare::test {

// Values that differ for each step of the network, wrong by the relative `error`.
inline Tensor Value(int step, double error = 0) {
  return Scaled(Numbers(2 + step, -1 - step, 0.1 * step, 7 + step), error);
}
inline constexpr double kWrong = 0.05, kRounding = 8e-7;

inline std::string_view First(const Comparison& c) {
  return c.first.pair < 0 ? "none" : EntryName(c, c.first.pair);
}

}  // namespace msprobe::compare::test
