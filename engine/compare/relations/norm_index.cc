#include "engine/compare/relations/norm_index.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace msprobe::compare::relations {

void NormIndex::Add(ValueId id, const Value& value) {
  const Moments& m = value.moments;
  OfSize& all = by_size_[m.n];
  all.norms.push_back(m.norm);
  all.items.push_back({m.high, m.low, id, value.dtype.dtype()});
}

void NormIndex::Build() {
  for (auto& [n, all] : by_size_) {
    std::vector<std::pair<double, uint32_t>> order;  // norms, and where their items are
    order.reserve(all.norms.size());
    for (const double norm : all.norms)
      order.emplace_back(norm, static_cast<uint32_t>(order.size()));
    std::sort(order.begin(), order.end());
    std::vector<Item> items;
    items.reserve(order.size());
    for (size_t i = 0; i < order.size(); ++i) {
      all.norms[i] = order[i].first;
      items.push_back(all.items[order[i].second]);
    }
    all.norms.shrink_to_fit();
    all.items = std::move(items);
  }
}

std::span<const NormIndex::Item> NormIndex::Near(int64_t n, double least, double most) const {
  constexpr size_t kMost = 64;
  const auto found = by_size_.find(n);
  if (found == by_size_.end()) return {};
  const auto& [norms, items] = found->second;
  const auto first = std::lower_bound(norms.begin(), norms.end(), least);
  const auto last = first + std::min<std::ptrdiff_t>(norms.end() - first, kMost);
  const auto end = std::find_if(first, last, [most](double norm) { return norm > most; });
  return {items.data() + (first - norms.begin()), static_cast<size_t>(end - first)};
}

size_t NormIndex::CountOf(int64_t n) const {
  const auto found = by_size_.find(n);
  return found == by_size_.end() ? 0 : found->second.items.size();
}

}  // namespace msprobe::compare::relations
