#include <algorithm>
#include <utility>

#include "engine/compare/align.h"
#include "engine/compare/record_keys.h"

namespace msprobe {
namespace {

constexpr float kRenamedLeafConfidence = 0.6f;
constexpr uint32_t kMaxLookAhead = 256;  // leaves; bounds the work on a record with very many

std::string_view MappedLeaf(const Leaf& leaf, const NameMapping& mapping) {
  if (mapping.leaves.empty()) return {};
  const auto it = mapping.leaves.find(std::string(leaf.name));
  return it == mapping.leaves.end() ? std::string_view() : std::string_view(it->second);
}

}  // namespace

void AlignLeaves(const Dump& target, const Record* target_record, const Dump& golden,
                 const Record* golden_record, const NameMapping& mapping, std::vector<Row>* rows) {
  const uint32_t n = target_record ? target_record->leaf_count : 0;
  const uint32_t m = golden_record ? golden_record->leaf_count : 0;
  const int32_t t0 = target_record ? static_cast<int32_t>(target_record->first_leaf) : 0;
  const int32_t g0 = golden_record ? static_cast<int32_t>(golden_record->first_leaf) : 0;
  const auto one_sided = [&](int32_t t, int32_t g) {
    rows->push_back({t, g, t >= 0 ? Match::kTargetOnly : Match::kGoldenOnly, 0});
  };
  if (target_record == nullptr || golden_record == nullptr) {
    for (uint32_t i = 0; i < n; ++i) one_sided(t0 + i, -1);
    for (uint32_t j = 0; j < m; ++j) one_sided(-1, g0 + j);
    return;
  }

  const auto a = target.LeavesOf(*target_record), b = golden.LeavesOf(*golden_record);
  bool trivial = n == m && mapping.leaves.empty();
  for (uint32_t i = 0; trivial && i < n; ++i) {
    trivial = a[i].slot == b[i].slot &&
              (a[i].name == b[i].name ||
               LeafPlace(a[i], *target_record) == LeafPlace(b[i], *golden_record));
  }
  if (trivial) {
    for (uint32_t i = 0; i < n; ++i) {
      rows->push_back(
          {static_cast<int32_t>(t0 + i), static_cast<int32_t>(g0 + i), Match::kExact, 1});
    }
    return;
  }

  // By place; sorted, since a hostile record may have very many leaves.
  using Place = std::pair<uint64_t, std::string_view>;
  std::vector<int32_t> partner(n, -1);
  std::vector<float> confidence(n, 1);
  std::vector<char> used(m, 0);
  std::vector<uint32_t> order(m), taken_of_group(m, 0);
  for (uint32_t j = 0; j < m; ++j) order[j] = j;
  const auto place_b = [&](uint32_t j) {
    return Place(SlotClass(b[j].slot), LeafPlace(b[j], *golden_record));
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t x, uint32_t y) { return place_b(x) < place_b(y); });
  for (uint32_t i = 0; i < n; ++i) {
    if (const std::string_view mapped = MappedLeaf(a[i], mapping); !mapped.empty()) {
      for (uint32_t j = 0; j < m && partner[i] < 0; ++j) {
        if (!used[j] && b[j].name == mapped) partner[i] = static_cast<int32_t>(j), used[j] = 1;
      }
      if (partner[i] >= 0) continue;
    }
    const Place wanted(SlotClass(a[i].slot), LeafPlace(a[i], *target_record));
    const auto it = std::lower_bound(order.begin(), order.end(), wanted,
                                     [&](uint32_t x, const Place& w) { return place_b(x) < w; });
    if (it == order.end()) continue;
    // Leaves of one place are given out in order; those that a mapping took are not.
    uint32_t& taken = taken_of_group[it - order.begin()];
    while (it + taken < order.end() && place_b(*(it + taken)) == wanted && used[*(it + taken)])
      ++taken;
    const auto pick = it + taken;
    if (pick >= order.end() || place_b(*pick) != wanted) continue;
    ++taken;
    partner[i] = static_cast<int32_t>(*pick);
    used[*pick] = 1;
  }
  // The rest in order, where kind and shape agree: input.1 against kwargs.bias.
  for (uint32_t i = 0, j = 0; i < n; ++i) {
    if (partner[i] >= 0 || a[i].kind != LeafKind::kTensor) continue;
    for (uint32_t k = j; k < m && k < j + kMaxLookAhead; ++k) {
      if (used[k] || b[k].kind != a[i].kind || SlotClass(a[i].slot) != SlotClass(b[k].slot) ||
          !SameSqueezedShape(a[i].shape, b[k].shape)) {
        continue;
      }
      partner[i] = static_cast<int32_t>(k);
      confidence[i] = kRenamedLeafConfidence;
      used[k] = 1;
      j = k + 1;
      break;
    }
  }
  // Golden-only rows stand before the first target row of a later slot class, so that tables read
  // in order.
  uint32_t j = 0;
  for (uint32_t i = 0; i <= n; ++i) {
    for (; j < m && (i == n || SlotClass(b[j].slot) < SlotClass(a[i].slot)); ++j) {
      if (!used[j]) one_sided(-1, g0 + j);
    }
    if (i == n) break;
    if (partner[i] < 0) {
      one_sided(t0 + i, -1);
    } else {
      rows->push_back({static_cast<int32_t>(t0 + i), g0 + partner[i],
                       confidence[i] == 1 ? Match::kExact : Match::kAligned, confidence[i]});
    }
  }
}

}  // namespace msprobe
