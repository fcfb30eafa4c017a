// Comparing by the rules of measure, judge, regions and explain, for tests of these.
//
//   const Comparison c = ByRules(std::move(target), std::move(golden));
#pragma once

#include <utility>

#include "tests/compare/dump_builder.h"

namespace msprobe::compare::test {

inline Comparison ByRules(Dump target, Dump golden, CompareOptions options = {}) {
  options.engine = Engine::kRules;
  return MustCompare(std::move(target), std::move(golden), options);
}

}  // namespace msprobe::compare::test
