#include "engine/compare/regions/value_flow.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/base/threads.h"

namespace msprobe::compare {

ValueFlow::ValueFlow(const Comparison& c, bool target, const std::vector<char>& followed)
    : content_(ContentOf(c)), target_(target), followed_(*content_) {
  const Dump& dump = target ? c.target : c.golden;
  const auto for_each_leaf = [&](const RecordPair& pair, auto use) {
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      const int32_t leaf = target ? c.rows[i].target : c.rows[i].golden;
      if (leaf >= 0) use(leaf, static_cast<int32_t>(i));
    }
  };
  for (size_t p = 0; p < c.pairs.size(); ++p) {
    if (!followed[p]) continue;
    for_each_leaf(c.pairs[p], [&](int32_t leaf, int32_t) {
      followed_.Insert(content_->ResultOf(target, leaf));
    });
  }
  // first_use_[v + 1] is first the number of uses of v, then where the next one is put.
  first_use_.assign(content_->size() + 1, 0);
  const auto for_each_use = [&](auto use) {
    for (size_t p = 0; p < c.pairs.size(); ++p) {
      for_each_leaf(c.pairs[p], [&](int32_t leaf, int32_t row) {
        const int32_t value = content_->ArgumentOf(target, leaf);
        if (followed_.Has(value)) use(value, leaf, static_cast<int32_t>(p), row);
      });
    }
  };
  for_each_use([&](int32_t value, int32_t, int32_t, int32_t) { ++first_use_[value + 1]; });
  uint32_t all = 0;
  for (uint32_t& first : first_use_) first = std::exchange(all, all + first);
  uses_.resize(all);
  for_each_use([&](int32_t value, int32_t leaf, int32_t pair, int32_t row) {
    uses_[first_use_[value + 1]++] = {dump.leaves[leaf].record, pair, row};
  });
  // The pairs are in the order of the target.
  const auto earlier = [](const ValueUse& a, const ValueUse& b) { return a.record < b.record; };
  for (size_t v = 0; v + 1 < first_use_.size(); ++v) {
    const auto begin = uses_.begin() + first_use_[v], end = uses_.begin() + first_use_[v + 1];
    if (!std::is_sorted(begin, end, earlier)) std::stable_sort(begin, end, earlier);
  }
}

std::span<const ValueUse> ValueFlow::UsesOf(const Leaf& leaf) const {
  constexpr ptrdiff_t kMost = 64;
  const int32_t value = content_->Of(target_, leaf);
  if (!followed_.Has(value)) return {};
  const auto end = uses_.begin() + first_use_[value + 1];
  const auto begin =
      std::upper_bound(uses_.begin() + first_use_[value], end, leaf.record,
                       [](uint32_t record, const ValueUse& use) { return record < use.record; });
  return {begin, std::min(end, begin + kMost)};
}

ValueFlows FlowsOf(const Comparison& c, const std::vector<char>& followed) {
  std::optional<ValueFlow> flows[2];
  ThreadPool::Default().ParallelFor(
      2, [&](size_t side) { flows[side].emplace(c, /*target=*/side == 0, followed); });
  return {*std::move(flows[0]), *std::move(flows[1])};
}

}  // namespace msprobe::compare
