#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/compare/align/align.h"
#include "engine/compare/model/optimizer_groups.h"
#include "engine/compare/model/record_keys.h"

namespace msprobe::compare {
namespace {

constexpr float kRenamedLeafConfidence = 0.6f;
constexpr int32_t kOtherPair = -2;       // of a target leaf: its row is in another pair
constexpr uint32_t kMaxLookAhead = 256;  // leaves; bounds the work on a record with very many

constexpr size_t kMaxRenamedWeights = 1 << 24;  // leaves that are looked at; bounds the time
constexpr double kMostApart = 0.01;             // relative, of statistics of one renamed weight
constexpr std::string_view kWeights = "weights.";

using Place = std::pair<uint64_t, std::string_view>;

// Where the values of one call are in the golden, as the api mapping says.
class PlaceMapping {
 public:
  PlaceMapping(const NameMapping& mapping, const Record& record)
      : backward_(record.direction == Direction::kBackward) {
    if (mapping.places.empty()) return;
    const auto found = mapping.places.find(std::string(record.api));
    if (found != mapping.places.end()) places_ = &found->second;
  }
  bool empty() const { return places_ == nullptr; }
  // Changes `place` from the target's to the golden's. The new place may point into `text`. false:
  // the leaf has no partner.
  bool Move(Place* place, std::string* text) const {
    if (places_ == nullptr) return true;
    // The lists name values of the forward call. The inputs of the backward call are the gradients
    // of the forward call's outputs, and its outputs those of the forward call's inputs.
    const uint64_t slot =
        backward_ && place->first == SlotClass(Slot::kInput)    ? SlotClass(Slot::kOutput)
        : backward_ && place->first == SlotClass(Slot::kOutput) ? SlotClass(Slot::kInput)
                                                                : place->first;
    const size_t dot = place->second.find('.');
    const std::string head(place->second.substr(0, dot));
    const bool position = head.find_first_not_of("0123456789") == head.npos;
    const auto found = places_->moved.find({slot, head});
    // The lists name arguments by position, so keyword arguments keep their names.
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

// Where the settings of an optimizer's groups are in the golden, which may list its groups
// otherwise.
class GroupMapping {
 public:
  GroupMapping(const Dump& target, const Record& target_record, const Dump& golden,
               const Record& golden_record) {
    const OptimizerGroups of_target(target, target_record), of_golden(golden, golden_record);
    if (!of_target.empty() && !of_golden.empty()) partners_ = of_target.PartnersIn(of_golden);
  }
  // Changes `place` from the target's to the golden's. The new place may point into `text`. A group
  // without a partner keeps its settings for itself: false.
  bool Move(Place* place, std::string* text) const {
    if (partners_.empty() || place->first != SlotClass(Slot::kInput)) return true;
    const GroupSetting setting = GroupSettingOf(place->second);
    if (setting.group < 0 || static_cast<size_t>(setting.group) >= partners_.size()) return true;
    const int32_t partner = partners_[static_cast<size_t>(setting.group)];
    if (partner == setting.group) return true;
    if (partner < 0) return false;
    *text = "param_groups." + std::to_string(partner) + "." + std::string(setting.name);
    place->second = *text;
    return true;
  }

 private:
  std::vector<int32_t> partners_;  // of each group of the target; empty: not known
};

// Pairs the leaves of two calls, step by step: links, then places, then kinds and shapes.
class LeafPairs {
 public:
  LeafPairs(const Dump& target, const Record& target_record, const Dump& golden,
            const Record& golden_record, const RowsOf& which)
      : a_(target.LeavesOf(target_record)),
        b_(golden.LeavesOf(golden_record)),
        target_record_(target_record),
        golden_record_(golden_record),
        partner_(a_.size(), -1),
        confidence_(a_.size(), 1),
        used_(b_.size(), which.links_only ? 1 : 0),
        hidden_(b_.size(), which.links_only ? 1 : 0),
        settled_(a_.size(), which.links_only ? 1 : 0),
        which_(which) {}

  void Link(const Dump& golden, const LeafLinks& links) {
    const auto in_another_pair = [&](int32_t partner) {
      if (partner < 0) return which_.target_listed;
      const uint32_t record = golden.leaves[partner].record;
      return std::find(which_.elsewhere.begin(), which_.elsewhere.end(), record) !=
                 which_.elsewhere.end() ||
             (which_.target_listed && &golden.records[record] != &golden_record_);
    };
    for (size_t i = 0; i < a_.size(); ++i) {
      const size_t leaf = target_record_.first_leaf + i;
      partner_[i] = links.golden_of[leaf];
      if (!links.closed_target.empty()) settled_[i] |= links.closed_target[leaf];
      if (in_another_pair(partner_[i])) partner_[i] = kOtherPair;
    }
    for (size_t j = 0; j < b_.size(); ++j) {
      const size_t leaf = golden_record_.first_leaf + j;
      hidden_[j] |= links.taken[leaf];
      used_[j] |= links.taken[leaf];
      if (!links.closed_golden.empty()) used_[j] |= links.closed_golden[leaf];
    }
  }

  // The golden's leaves are sorted by place and looked up by binary search. A hostile record may
  // have so many leaves that a comparison of each with each would take hours.
  void PairByPlace(const PlaceMapping& moved, const GroupMapping& groups) {
    std::vector<uint32_t> order(b_.size()), taken_of_group(b_.size(), 0);
    for (uint32_t j = 0; j < b_.size(); ++j) order[j] = j;
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t x, uint32_t y) { return PlaceB(x) < PlaceB(y); });
    for (uint32_t i = 0; i < a_.size(); ++i) {
      if (partner_[i] != -1 || settled_[i]) continue;
      Place wanted(SlotClass(a_[i].slot), LeafPlace(a_[i], target_record_));
      std::string text;
      if (!moved.Move(&wanted, &text) || !groups.Move(&wanted, &text)) {
        // No partner: the api mapping lists other values of the slot only, or the group is of one
        // run.
        settled_[i] = 1;
        continue;
      }
      const auto it = std::lower_bound(order.begin(), order.end(), wanted,
                                       [&](uint32_t x, const Place& w) { return PlaceB(x) < w; });
      if (it == order.end()) continue;
      // Several golden leaves may have the same place: the first free one is taken. Leaves that a
      // data mapping has paired are not free.
      uint32_t& taken = taken_of_group[it - order.begin()];
      while (it + taken < order.end() && PlaceB(*(it + taken)) == wanted && used_[*(it + taken)])
        ++taken;
      const auto pick = it + taken;
      if (pick >= order.end() || PlaceB(*pick) != wanted) continue;
      ++taken;
      partner_[i] = Golden(*pick);
      used_[*pick] = hidden_[*pick] = 1;
    }
  }

  // In the entry of an optimizer, parameters that have other names: those whose weights look most
  // alike are one parameter, and so are their gradients and their state.
  void PairRenamedParameters() {
    if (!IsOptimizerCall(golden_record_.api)) return;
    std::vector<uint32_t> target = FreeWeights(a_, target_record_, partner_, settled_);
    std::vector<int32_t> taken(used_.begin(), used_.end());
    for (int32_t& t : taken) t = t != 0 ? 0 : -1;
    std::vector<uint32_t> golden = FreeWeights(b_, golden_record_, taken, used_);
    if (target.size() * std::max(golden.size(), a_.size()) > kMaxRenamedWeights) return;
    std::map<Place, uint32_t> places;  // of the golden's leaves that are free
    for (uint32_t j = 0; j < b_.size() && !target.empty(); ++j) {
      if (!used_[j]) places.emplace(PlaceB(j), j);
    }
    // Layers that began alike are told apart by their order: a pair leaves both lists.
    for (const uint32_t i : std::vector<uint32_t>(target)) {
      const int32_t j = Likest(a_[i], golden, b_);
      if (j < 0 || Likest(b_[j], target, a_) != static_cast<int32_t>(i)) continue;
      std::erase(target, i);
      std::erase(golden, static_cast<uint32_t>(j));
      PairParameter(LeafPlace(a_[i], target_record_).substr(kWeights.size()),
                    LeafPlace(b_[j], golden_record_).substr(kWeights.size()), places);
    }
  }

  // Pairs the tensors that are left, in order, where slot class and shape agree: input.1 with
  // kwargs.bias.
  void PairByShape() {
    for (uint32_t i = 0, j = 0; i < a_.size(); ++i) {
      if (partner_[i] != -1 || settled_[i] || a_[i].kind != LeafKind::kTensor) continue;
      for (uint32_t k = j; k < b_.size() && k < j + kMaxLookAhead; ++k) {
        if (used_[k] || b_[k].kind != a_[i].kind ||
            SlotClass(a_[i].slot) != SlotClass(b_[k].slot) ||
            !a_[i].shape.SameWithoutOnes(b_[k].shape)) {
          continue;
        }
        partner_[i] = Golden(k);
        confidence_[i] = kRenamedLeafConfidence;
        used_[k] = hidden_[k] = 1;
        j = k + 1;
        break;
      }
    }
  }

  // Golden-only rows come before the first target row of a later slot class, so that tables read
  // in order.
  void AppendRows(std::vector<Row>* rows) const {
    size_t j = 0;
    for (size_t i = 0; i <= a_.size(); ++i) {
      const bool last = i == a_.size();
      for (; j < b_.size() && (last || SlotClass(b_[j].slot) < SlotClass(a_[i].slot)); ++j) {
        if (!hidden_[j]) rows->push_back({-1, Golden(j), Match::kGoldenOnly, 0});
      }
      if (last) break;
      const auto t = static_cast<int32_t>(target_record_.first_leaf + i);
      if (partner_[i] == kOtherPair) continue;
      if (partner_[i] < 0) {
        rows->push_back({t, -1, Match::kTargetOnly, 0});
      } else {
        rows->push_back({t, partner_[i], confidence_[i] == 1 ? Match::kExact : Match::kAligned,
                         confidence_[i]});
      }
    }
  }

 private:
  static std::vector<uint32_t> FreeWeights(std::span<const Leaf> leaves, const Record& record,
                                           const std::vector<int32_t>& partner,
                                           const std::vector<char>& settled) {
    std::vector<uint32_t> free;
    for (uint32_t i = 0; i < leaves.size(); ++i) {
      if (partner[i] == -1 && !settled[i] && leaves[i].kind == LeafKind::kTensor &&
          leaves[i].slot != Slot::kOutput && leaves[i].has_stats &&
          LeafPlace(leaves[i], record).starts_with(kWeights))
        free.push_back(i);
    }
    return free;
  }

  // Of the leaves `among` of `leaves` the one with the shape of `like` and the nearest statistics;
  // -1: there is none.
  static int32_t Likest(const Leaf& like, const std::vector<uint32_t>& among,
                        std::span<const Leaf> leaves) {
    int32_t best = -1;
    double nearest = kMostApart;
    for (const uint32_t k : among) {
      const Leaf& leaf = leaves[k];
      if (leaf.shape != like.shape || leaf.dtype != like.dtype) continue;
      const double size = std::max(std::abs(like.max_value), std::abs(like.min_value));
      const double apart =
          leaf.fingerprint == like.fingerprint && !leaf.fingerprint.empty()
              ? 0
              : std::max({std::abs(leaf.norm_value - like.norm_value) / like.norm_value,
                          std::abs(leaf.max_value - like.max_value) / size,
                          std::abs(leaf.min_value - like.min_value) / size});
      if (apart < nearest) nearest = apart, best = static_cast<int32_t>(k);
    }
    return best;
  }

  // Pairs all that the two entries have of a parameter: "weights.NAME", "0.state.NAME.exp_avg".
  void PairParameter(std::string_view name, std::string_view golden_name,
                     const std::map<Place, uint32_t>& places) {
    for (uint32_t i = 0; i < a_.size(); ++i) {
      if (partner_[i] != -1 || settled_[i]) continue;
      const std::string_view place = LeafPlace(a_[i], target_record_);
      const size_t at = place.find(name);
      const size_t end = at + name.size();
      if (at == place.npos || at == 0 || place[at - 1] != '.' ||
          (end < place.size() && place[end] != '.'))
        continue;
      std::string wanted(place);
      wanted.replace(at, name.size(), golden_name);
      const auto found = places.find(Place(SlotClass(a_[i].slot), wanted));
      if (found == places.end() || used_[found->second]) continue;
      partner_[i] = Golden(found->second);
      confidence_[i] = kRenamedLeafConfidence;
      used_[found->second] = hidden_[found->second] = 1;
    }
  }

  Place PlaceB(size_t j) const {
    return Place(SlotClass(b_[j].slot), LeafPlace(b_[j], golden_record_));
  }
  int32_t Golden(size_t j) const { return static_cast<int32_t>(golden_record_.first_leaf + j); }

  const std::span<const Leaf> a_, b_;
  const Record &target_record_, &golden_record_;
  std::vector<int32_t> partner_;  // of each target leaf: index into the golden's leaves, -1: none
  std::vector<float> confidence_;
  std::vector<char> used_;     // of each golden leaf: it has a partner, or may have none
  std::vector<char> hidden_;   // of each golden leaf: it needs no row of its own
  std::vector<char> settled_;  // of each target leaf: it has no partner
  const RowsOf& which_;
};

}  // namespace

bool HaveSamePlaces(const Dump& target, const Record& target_record, const Dump& golden,
                    const Record& golden_record) {
  const auto a = target.LeavesOf(target_record), b = golden.LeavesOf(golden_record);
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const Leaf& x, const Leaf& y) {
    return x.slot == y.slot &&
           (x.name == y.name || LeafPlace(x, target_record) == LeafPlace(y, golden_record));
  });
}

void AlignLeaves(const Dump& target, const Record* target_record, const Dump& golden,
                 const Record* golden_record, const NameMapping& mapping, std::vector<Row>* rows,
                 const LeafLinks* links, const RowsOf& which) {
  if (target_record == nullptr || golden_record == nullptr) {
    const uint32_t n = target_record ? target_record->leaf_count : 0;
    const uint32_t m = golden_record ? golden_record->leaf_count : 0;
    for (uint32_t i = 0; i < n; ++i) {
      const auto t = static_cast<int32_t>(target_record->first_leaf + i);
      rows->push_back({t, -1, Match::kTargetOnly, 0});
    }
    for (uint32_t j = 0; j < m; ++j) {
      const auto g = static_cast<int32_t>(golden_record->first_leaf + j);
      if (links == nullptr || !links->taken[g]) rows->push_back({-1, g, Match::kGoldenOnly, 0});
    }
    return;
  }
  const PlaceMapping moved(mapping, *target_record);
  if (links == nullptr && moved.empty() &&
      (which.same_places || HaveSamePlaces(target, *target_record, golden, *golden_record))) {
    for (uint32_t i = 0; i < target_record->leaf_count; ++i) {
      rows->push_back({static_cast<int32_t>(target_record->first_leaf + i),
                       static_cast<int32_t>(golden_record->first_leaf + i), Match::kExact, 1});
    }
    return;
  }
  LeafPairs pairs(target, *target_record, golden, *golden_record, which);
  if (links != nullptr) pairs.Link(golden, *links);
  pairs.PairByPlace(moved, GroupMapping(target, *target_record, golden, *golden_record));
  pairs.PairRenamedParameters();
  pairs.PairByShape();
  pairs.AppendRows(rows);
}

}  // namespace msprobe::compare
