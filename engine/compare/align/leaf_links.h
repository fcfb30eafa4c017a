// The pairs of values that a data mapping (a file of pairs of leaf names) names. The two values of
// a pair may belong to calls that are not partners.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/compare/model/compare_options.h"
#include "engine/model/table.h"

namespace msprobe::compare {

struct LeafLinks {
  // For each leaf of the target the golden leaf; -1: the mapping does not name it. Empty without a
  // data mapping.
  std::vector<int32_t> golden_of;
  std::vector<char> taken;  // for each leaf of the golden: whether the mapping pairs it
  // For each record of the target the golden record that most of its values are paired with; -1:
  // none.
  std::vector<int32_t> record_of;
  bool empty() const { return golden_of.empty(); }
};

LeafLinks LinkLeaves(const Dump& target, const Dump& golden, const NameMapping& mapping);

}  // namespace msprobe::compare
