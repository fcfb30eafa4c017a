#include "engine/compare/regions/gradient_sums.h"

#include <algorithm>

#include "engine/base/threads.h"

namespace msprobe::compare {

GradientSums::GradientSums(const Comparison& c)
    : c_(c), content_(ContentOf(c)), backward_of_(c.pairs.size(), -1) {
  for (size_t p = 0; p < c.forward_of.size(); ++p) {
    if (c.forward_of[p] >= 0) backward_of_[c.forward_of[p]] = static_cast<int32_t>(p);
  }
  ThreadPool::Default().ParallelFor(2, [&](size_t side) {
    const bool target = side == 0;
    const Dump& dump = target ? c.target : c.golden;
    makers_[side].assign(content_->size(), -1);
    for (size_t p = 0; p < c.pairs.size(); ++p) {
      const int32_t record = target ? c.pairs[p].target : c.pairs[p].golden;
      if (backward_of_[p] < 0 || record < 0) continue;
      for (const Leaf& leaf : dump.LeavesOf(dump.records[record])) {
        const int32_t made = leaf.slot == Slot::kOutput ? content_->Of(target, leaf) : -1;
        // The first one: calls of modules return what a call inside them made.
        if (made >= 0 && makers_[side][made] < 0) makers_[side][made] = static_cast<int32_t>(p);
      }
    }
  });
}

std::vector<int32_t> GradientSums::TakersOf(int32_t backward, bool target) const {
  std::vector<int32_t> takers;
  const int32_t forward =
      static_cast<size_t>(backward) < c_.forward_of.size() ? c_.forward_of[backward] : -1;
  const int32_t record =
      forward < 0 ? -1 : (target ? c_.pairs[forward].target : c_.pairs[forward].golden);
  if (record < 0) return takers;
  const Record& call = (target ? c_.target : c_.golden).records[record];
  for (uint32_t i = call.first_leaf; i < call.first_leaf + call.leaf_count; ++i) {
    const int32_t taken = content_->ArgumentOf(target, static_cast<int32_t>(i));
    const int32_t maker = taken < 0 ? -1 : makers_[target ? 0 : 1][taken];
    if (maker < 0 || maker >= forward) continue;
    const int32_t taker = backward_of_[maker];
    if (std::find(takers.begin(), takers.end(), taker) == takers.end()) takers.push_back(taker);
  }
  return takers;
}

}  // namespace msprobe::compare
