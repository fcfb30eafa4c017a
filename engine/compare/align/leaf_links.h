// Values that a data mapping pairs by name, wherever their calls are.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/compare/model/compare_options.h"
#include "engine/model/table.h"

namespace msprobe::compare {

struct LeafLinks {
  std::vector<int32_t> golden_of;  // one a leaf of the target, -1: none; empty without a mapping
  std::vector<char> taken;         // one a leaf of the golden
  // One a record of the target: the golden record that most of its values are paired with, -1:
  // none.
  std::vector<int32_t> record_of;
  bool empty() const { return golden_of.empty(); }
};

LeafLinks LinkLeaves(const Dump& target, const Dump& golden, const NameMapping& mapping);

}  // namespace msprobe::compare
