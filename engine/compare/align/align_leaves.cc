#include <algorithm>
#include <utility>

#include "engine/compare/align/align.h"
#include "engine/compare/model/record_keys.h"

namespace msprobe::compare {
namespace {

constexpr float kRenamedLeafConfidence = 0.6f;
constexpr uint32_t kMaxLookAhead = 256;  // leaves; bounds the work on a record with very many

using Place = std::pair<uint64_t, std::string_view>;

// Where api mappings say that the values of one call are found; `text` holds what had to be made.
class PlaceMapping {
 public:
  PlaceMapping(const NameMapping& mapping, const Record& record)
      : backward_(record.direction == Direction::kBackward) {
    if (mapping.places.empty()) return;
    const auto found = mapping.places.find(std::string(record.api));
    if (found != mapping.places.end()) places_ = &found->second;
  }
  bool empty() const { return places_ == nullptr; }
  // The place in the golden; false: the leaf has no partner.
  bool Move(Place* place, std::string* text) const {
    if (places_ == nullptr) return true;
    // What goes into a backward call belongs to what came out of the forward call.
    const uint64_t slot =
        backward_ && place->first == SlotClass(Slot::kInput)    ? SlotClass(Slot::kOutput)
        : backward_ && place->first == SlotClass(Slot::kOutput) ? SlotClass(Slot::kInput)
                                                                : place->first;
    const size_t dot = place->second.find('.');
    const std::string head(place->second.substr(0, dot));
    const bool position = head.find_first_not_of("0123456789") == head.npos;
    const auto found = places_->moved.find({slot, head});
    // Lists name positions (of parameters, names): keyword arguments stay what they are.
    if (found == places_->moved.end())
      return places_->listed.count(slot) == 0 || (!position && slot == SlotClass(Slot::kInput));
    *text = found->second;
    if (dot != place->second.npos) *text += place->second.substr(dot);
    place->second = *text;
    return true;
  }

 private:
  const bool backward_;
  const NameMapping::Places* places_ = nullptr;
};

}  // namespace

void AlignLeaves(const Dump& target, const Record* target_record, const Dump& golden,
                 const Record* golden_record, const NameMapping& mapping, std::vector<Row>* rows,
                 const LeafLinks* links, bool links_only) {
  const uint32_t n = target_record ? target_record->leaf_count : 0;
  const uint32_t m = golden_record ? golden_record->leaf_count : 0;
  const int32_t t0 = target_record ? static_cast<int32_t>(target_record->first_leaf) : 0;
  const int32_t g0 = golden_record ? static_cast<int32_t>(golden_record->first_leaf) : 0;
  const auto one_sided = [&](int32_t t, int32_t g) {
    rows->push_back({t, g, t >= 0 ? Match::kTargetOnly : Match::kGoldenOnly, 0});
  };
  if (target_record == nullptr || golden_record == nullptr) {
    for (uint32_t i = 0; i < n; ++i) one_sided(t0 + i, -1);
    for (uint32_t j = 0; j < m; ++j) {
      if (links == nullptr || !links->taken[g0 + j]) one_sided(-1, g0 + j);
    }
    return;
  }

  const auto a = target.LeavesOf(*target_record), b = golden.LeavesOf(*golden_record);
  const PlaceMapping moved(mapping, *target_record);
  bool trivial = n == m && links == nullptr && moved.empty();
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
  std::vector<int32_t> partner(n, -1);  // index into Dump::leaves
  std::vector<float> confidence(n, 1);
  std::vector<char> used(m, links_only ? 1 : 0), settled(n, links_only ? 1 : 0);
  if (links != nullptr) {
    for (uint32_t i = 0; i < n; ++i) partner[i] = links->golden_of[t0 + i];
    for (uint32_t j = 0; j < m; ++j) used[j] |= links->taken[g0 + j];
  }
  std::vector<uint32_t> order(m), taken_of_group(m, 0);
  for (uint32_t j = 0; j < m; ++j) order[j] = j;
  const auto place_b = [&](uint32_t j) {
    return Place(SlotClass(b[j].slot), LeafPlace(b[j], *golden_record));
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t x, uint32_t y) { return place_b(x) < place_b(y); });
  for (uint32_t i = 0; i < n; ++i) {
    if (partner[i] >= 0 || settled[i]) continue;
    Place wanted(SlotClass(a[i].slot), LeafPlace(a[i], *target_record));
    std::string text;
    if (!moved.Move(&wanted, &text)) {
      settled[i] = 1;  // abandoned: the api mapping does not list it
      continue;
    }
    const auto it = std::lower_bound(order.begin(), order.end(), wanted,
                                     [&](uint32_t x, const Place& w) { return place_b(x) < w; });
    if (it == order.end()) continue;
    // Leaves of one place are given out in order; those that are linked are not.
    uint32_t& taken = taken_of_group[it - order.begin()];
    while (it + taken < order.end() && place_b(*(it + taken)) == wanted && used[*(it + taken)])
      ++taken;
    const auto pick = it + taken;
    if (pick >= order.end() || place_b(*pick) != wanted) continue;
    ++taken;
    partner[i] = g0 + static_cast<int32_t>(*pick);
    used[*pick] = 1;
  }
  // The rest in order, where kind and shape agree: input.1 against kwargs.bias.
  for (uint32_t i = 0, j = 0; i < n; ++i) {
    if (partner[i] >= 0 || settled[i] || a[i].kind != LeafKind::kTensor) continue;
    for (uint32_t k = j; k < m && k < j + kMaxLookAhead; ++k) {
      if (used[k] || b[k].kind != a[i].kind || SlotClass(a[i].slot) != SlotClass(b[k].slot) ||
          !SameSqueezedShape(a[i].shape, b[k].shape)) {
        continue;
      }
      partner[i] = g0 + static_cast<int32_t>(k);
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
      rows->push_back({static_cast<int32_t>(t0 + i), partner[i],
                       confidence[i] == 1 ? Match::kExact : Match::kAligned, confidence[i]});
    }
  }
}

}  // namespace msprobe::compare
