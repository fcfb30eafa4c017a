// Pairs of values that are known before the values of two calls are paired by their places: those
// that a data mapping (a file of pairs of leaf names) names, and those of two frameworks
// (framework_leaves.h). The two values of a pair may belong to calls that are not partners.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/compare/model/compare_options.h"
#include "engine/model/table.h"

namespace msprobe::compare {

struct LeafLinks {
  // For each leaf of the target the golden leaf; -1: not known. Empty: no pair is known.
  std::vector<int32_t> golden_of;
  std::vector<char> taken;  // for each leaf of the golden: whether it is in such a pair
  // For each leaf whether it has no other partner than the one above. Empty: of no leaf.
  std::vector<char> closed_target, closed_golden;
  // For each record of the target the golden record that most of its values are paired with; -1:
  // none.
  std::vector<int32_t> record_of;
  bool empty() const { return golden_of.empty(); }
};

LeafLinks LinkLeaves(const Dump& target, const Dump& golden, const NameMapping& mapping);

}  // namespace msprobe::compare
