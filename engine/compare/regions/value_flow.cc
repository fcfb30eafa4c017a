#include "engine/compare/regions/value_flow.h"

#include <algorithm>
#include <utility>

#include "engine/compare/model/content_map.h"
#include "engine/compare/model/record_keys.h"

namespace msprobe::compare {

bool IsTensorResult(const Leaf& leaf) {
  return leaf.kind == LeafKind::kTensor &&
         (leaf.slot == Slot::kOutput || leaf.slot == Slot::kParameterGrad ||
          leaf.slot == Slot::kDebug);
}

bool IsTensorArgument(const Leaf& leaf) {
  return leaf.kind == LeafKind::kTensor && !IsTensorResult(leaf);
}

ValueFlow::ValueFlow(const Comparison& c, bool target, const std::vector<char>& followed)
    : leaves_((target ? c.target : c.golden).leaves.data()) {
  const Dump& dump = target ? c.target : c.golden;
  const auto for_each_leaf = [&](const RecordPair& pair, auto use) {
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      const int32_t leaf = target ? c.rows[i].target : c.rows[i].golden;
      if (leaf >= 0) use(dump.leaves[leaf], static_cast<int32_t>(i));
    }
  };
  ContentMap values;
  for (size_t p = 0; p < c.pairs.size(); ++p) {
    if (!followed[p]) continue;
    for_each_leaf(c.pairs[p], [&](const Leaf& leaf, int32_t) {
      const uint64_t key = IsTensorResult(leaf) ? ContentKey(leaf) : 0;
      if (key != 0) values.Insert(key, static_cast<int32_t>(values.size()));
    });
  }
  value_of_.assign(dump.leaves.size(), -1);
  for (size_t i = 0; i < dump.leaves.size() && values.size() > 0; ++i) {
    const Leaf& leaf = dump.leaves[i];
    const uint64_t key = leaf.kind == LeafKind::kTensor ? ContentKey(leaf) : 0;
    if (key != 0) value_of_[i] = values.Find(key);
  }
  std::vector<std::pair<int32_t, ValueUse>> uses;
  for (size_t p = 0; p < c.pairs.size() && values.size() > 0; ++p) {
    for_each_leaf(c.pairs[p], [&](const Leaf& leaf, int32_t row) {
      if (!IsTensorArgument(leaf)) return;
      const int32_t value = ValueOf(leaf);
      if (value >= 0) uses.push_back({value, {leaf.record, static_cast<int32_t>(p), row}});
    });
  }
  std::stable_sort(uses.begin(), uses.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second.record) < std::pair(b.first, b.second.record);
  });
  first_use_.assign(values.size() + 1, 0);
  for (const auto& [value, use] : uses) ++first_use_[value + 1];
  for (size_t v = 1; v < first_use_.size(); ++v) first_use_[v] += first_use_[v - 1];
  uses_.reserve(uses.size());
  for (const auto& [value, use] : uses) uses_.push_back(use);
}

std::span<const ValueUse> ValueFlow::UsesOf(const Leaf& leaf) const {
  constexpr ptrdiff_t kMost = 64;
  const int32_t value = ValueOf(leaf);
  if (value < 0) return {};
  const auto end = uses_.begin() + first_use_[value + 1];
  const auto begin =
      std::upper_bound(uses_.begin() + first_use_[value], end, leaf.record,
                       [](uint32_t record, const ValueUse& use) { return record < use.record; });
  return {begin, std::min(end, begin + kMost)};
}

}  // namespace msprobe::compare
