#include "engine/compare/align/strangers.h"

#include <algorithm>
#include <utility>

#include "engine/compare/model/record_keys.h"

namespace msprobe::compare {
namespace {

constexpr int kNear = 16;  // calls before and behind that are looked at
constexpr float kTwinConfidence = 0.9f;

// What a tensor is recognised by; 0: nothing recorded, or all its elements are one number, which
// other tensors may have, too.
uint64_t ContentOf(const Leaf& leaf) {
  if (leaf.kind != LeafKind::kTensor) return 0;
  if (leaf.has_stats && leaf.max_value == leaf.min_value) return 0;
  return ContentKey(leaf);
}

// The contents of the tensors that a call takes, or makes; sorted.
std::vector<uint64_t> Contents(const Dump& dump, uint32_t record, bool made) {
  std::vector<uint64_t> found;
  for (const Leaf& leaf : dump.LeavesOf(dump.records[record])) {
    const uint64_t content = (leaf.slot == Slot::kOutput) == made ? ContentOf(leaf) : 0;
    if (content != 0) found.push_back(content);
  }
  std::sort(found.begin(), found.end());
  return found;
}

// The side whose calls may be strangers, and the other side.
class Strangers {
 public:
  Strangers(const Dump& here, const Dump& there, std::span<const uint32_t> calls,
            std::vector<int32_t>* partners)
      : here_(here), there_(there), calls_(calls), partners_(*partners) {}

  // For each parted pair (call of this side, its partner, the call that takes its place or -1).
  struct Parted {
    uint32_t stranger;
    int32_t partner, twin;
  };
  std::vector<Parted> Find() const {
    std::vector<Parted> parted;
    for (size_t at = 0; at < calls_.size(); ++at) {
      const int32_t partner = partners_[calls_[at]];
      if (partner < 0 || !HasLonelyNeighbour(at) || ShareAValue(calls_[at], partner)) continue;
      if (const int32_t twin = PlaceTaken(at, partner); twin != kNone)
        parted.push_back({calls_[at], partner, twin});
    }
    return parted;
  }

 private:
  static constexpr int32_t kNone = -2;

  bool IsLonely(size_t at) const {
    return partners_[calls_[at]] < 0 && !here_.records[calls_[at]].is_module;
  }
  std::pair<size_t, size_t> Around(size_t at) const {
    return {at < kNear ? 0 : at - kNear, std::min(calls_.size(), at + kNear + 1)};
  }
  bool HasLonelyNeighbour(size_t at) const {
    const auto [begin, end] = Around(at);
    for (size_t i = begin; i < end; ++i) {
      if (IsLonely(i)) return true;
    }
    return false;
  }

  // Also where one of them has no value that tells: nothing contradicts such a pair.
  bool ShareAValue(uint32_t call, int32_t partner) const {
    bool told = false;
    const auto there = there_.LeavesOf(there_.records[partner]);
    for (const Leaf& leaf : here_.LeavesOf(here_.records[call])) {
      const uint64_t content = ContentOf(leaf);
      told = told || content != 0;
      if (content != 0 && std::any_of(there.begin(), there.end(), [&](const Leaf& other) {
            return ContentOf(other) == content;
          }))
        return true;
    }
    return !told;
  }

  // The only lonely call near the stranger that takes and makes what `partner` does; -1: one takes
  // it and a later one makes it; kNone: neither.
  int32_t PlaceTaken(size_t stranger, int32_t partner) const {
    const Record& wanted = there_.records[partner];
    const std::vector<uint64_t> taken = Contents(there_, partner, false),
                                made = Contents(there_, partner, true);
    if (wanted.is_module || taken.empty() || made.empty()) return kNone;
    const auto holds = [](const std::vector<uint64_t>& all, const std::vector<uint64_t>& part) {
      return std::includes(all.begin(), all.end(), part.begin(), part.end());
    };
    int32_t twin = kNone;
    bool takes = false, splits = false;
    const auto [begin, end] = Around(stranger);
    for (size_t i = begin; i < end; ++i) {
      const Record& r = here_.records[calls_[i]];
      // The module around the partner, or that of the stranger where modules were renamed.
      const std::string_view parent = WithoutCall(r.parent);
      // Of repeated calls of one function the other rules tell which is which: an expert is not
      // the one that takes the same tokens.
      if (!IsLonely(i) || r.direction != wanted.direction || r.api == wanted.api ||
          (parent != WithoutCall(wanted.parent) &&
           parent != WithoutCall(here_.records[calls_[stranger]].parent)))
        continue;
      const bool takes_it = Contents(here_, calls_[i], false) == taken;
      const bool makes_it = holds(Contents(here_, calls_[i], true), made);
      if (takes_it && makes_it) {
        if (twin >= 0) return kNone;  // two of them: which one is not known
        twin = static_cast<int32_t>(calls_[i]);
      }
      splits = splits || (takes && makes_it);
      takes = takes || takes_it;
    }
    return twin >= 0 ? twin : splits ? -1 : kNone;
  }

  const Dump &here_, &there_;
  const std::span<const uint32_t> calls_;
  const std::vector<int32_t>& partners_;
};

}  // namespace

void PartStrangers(const Dump& target, const Dump& golden, std::span<const uint32_t> target_calls,
                   std::span<const uint32_t> golden_calls, std::vector<Partner>* partners) {
  std::vector<int32_t> of_target(target.records.size(), -1), of_golden(golden.records.size(), -1);
  for (const uint32_t t : target_calls) {
    of_target[t] = (*partners)[t].golden;
    if (of_target[t] >= 0) of_golden[of_target[t]] = static_cast<int32_t>(t);
  }
  for (const auto& [stranger, partner, twin] :
       Strangers(target, golden, target_calls, &of_target).Find()) {
    (*partners)[stranger] = {};
    of_target[stranger] = of_golden[partner] = -1;
    if (twin < 0 || (*partners)[twin].golden >= 0) continue;
    (*partners)[twin] = {partner, kTwinConfidence};
    of_target[twin] = partner, of_golden[partner] = twin;
  }
  for (const auto& [stranger, partner, twin] :
       Strangers(golden, target, golden_calls, &of_golden).Find()) {
    (*partners)[partner] = {};
    if (twin < 0 || of_golden[twin] >= 0) continue;
    (*partners)[partner] = {twin, kTwinConfidence};
    of_golden[twin] = partner;
  }
}

}  // namespace msprobe::compare
