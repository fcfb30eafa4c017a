#include "engine/compare/regions/gradient_sums.h"

#include <algorithm>

#include "engine/compare/model/record_keys.h"
#include "engine/compare/regions/value_flow.h"

namespace msprobe::compare {

GradientSums::GradientSums(const Comparison& c) : c_(c), backward_of_(c.pairs.size(), -1) {
  for (size_t p = 0; p < c.forward_of.size(); ++p) {
    if (c.forward_of[p] >= 0) backward_of_[c.forward_of[p]] = static_cast<int32_t>(p);
  }
  for (size_t p = 0; p < c.pairs.size(); ++p) {
    if (backward_of_[p] < 0) continue;
    for (const bool target : {true, false}) {
      const Dump& dump = target ? c.target : c.golden;
      const int32_t record = target ? c.pairs[p].target : c.pairs[p].golden;
      if (record < 0) continue;
      for (const Leaf& leaf : dump.LeavesOf(dump.records[record])) {
        const uint64_t key =
            leaf.slot == Slot::kOutput && IsTensorResult(leaf) ? ContentKey(leaf) : 0;
        // The first one: calls of modules return what a call inside them made.
        if (key != 0) makers_[target ? 0 : 1].Insert(key, static_cast<int32_t>(p));
      }
    }
  }
}

std::vector<int32_t> GradientSums::TakersOf(int32_t backward, bool target) const {
  std::vector<int32_t> takers;
  const int32_t forward =
      static_cast<size_t>(backward) < c_.forward_of.size() ? c_.forward_of[backward] : -1;
  const int32_t record =
      forward < 0 ? -1 : (target ? c_.pairs[forward].target : c_.pairs[forward].golden);
  if (record < 0) return takers;
  const Dump& dump = target ? c_.target : c_.golden;
  for (const Leaf& leaf : dump.LeavesOf(dump.records[record])) {
    const uint64_t key = IsTensorArgument(leaf) ? ContentKey(leaf) : 0;
    const int32_t maker = key == 0 ? -1 : makers_[target ? 0 : 1].Find(key);
    if (maker < 0 || maker >= forward) continue;
    const int32_t taker = backward_of_[maker];
    if (std::find(takers.begin(), takers.end(), taker) == takers.end()) takers.push_back(taker);
  }
  return takers;
}

}  // namespace msprobe::compare
