#include "engine/compare/measure/same_tensor.h"

#include <algorithm>
#include <vector>

#include "engine/compare/model/content_ids.h"
#include "engine/compare/model/content_map.h"

namespace msprobe::compare {
namespace {

// What all rows of one pair of tensors say.
struct Judged {
  bool noise = false, differs = false;
  uint32_t maker = UINT32_MAX;  // the row that decides, once one is known
  bool moved = false;           // it differs because moving does not round
};

bool CanChange(const Measure& m) {
  return m.verdict == RowVerdict::kNoise || m.verdict == RowVerdict::kDiffers;
}

// Whether the row is a pair of tensors with digests that is noise or differs. A shape that has an
// effect in one place says nothing of the elements.
bool IsJudged(const Comparison& c, uint32_t i) {
  const Row& row = c.rows[i];
  if (row.target < 0 || row.golden < 0 || !CanChange(c.measures[i])) return false;
  if (c.measures[i].reason == Reason::kShapeDiffers) return false;
  const auto has_digest = [](const Leaf& leaf) {
    return leaf.kind == LeafKind::kTensor && (!leaf.fingerprint.empty() || !leaf.checksum.empty());
  };
  return has_digest(c.target.leaves[row.target]) && has_digest(c.golden.leaves[row.golden]);
}

// Numbers the pairs of a tensor of the target and one of the golden, from 0.
class TensorPairs {
 public:
  explicit TensorPairs(const ContentIds& ids) : ids_(ids), first_of_(ids.size(), -1) {}

  int32_t NumberOf(const Row& row) {
    const int32_t target = ids_.Of(true, row.target), golden = ids_.Of(false, row.golden);
    int32_t& first = first_of_[target];
    if (first < 0) {
      first = static_cast<int32_t>(golden_of_.size());
      golden_of_.push_back(golden);
    }
    if (golden_of_[first] == golden) return first;
    // Few tensors of the target stand beside several of the golden.
    const uint64_t both = static_cast<uint64_t>(target) << 32 | static_cast<uint32_t>(golden);
    const uint64_t hash = both * 0x9e3779b97f4a7c15u;
    const auto next = static_cast<int32_t>(golden_of_.size());
    const int32_t number = others_.Insert(hash ^ hash >> 32, next);
    if (number == next) golden_of_.push_back(golden);
    return number;
  }

 private:
  const ContentIds& ids_;
  std::vector<int32_t> first_of_;   // of each content of the target: its first pair; -1: none yet
  std::vector<int32_t> golden_of_;  // of each pair
  ContentMap others_;
};

}  // namespace

void GiveOneVerdictToEachTensor(Comparison* c) {
  const auto any = [&](RowVerdict verdict) {
    return std::any_of(c->measures.begin(), c->measures.end(),
                       [&](const Measure& m) { return m.verdict == verdict; });
  };
  if (!any(RowVerdict::kNoise) || !any(RowVerdict::kDiffers)) return;
  TensorPairs pairs(ContentOf(c));
  std::vector<Judged> tensors;
  std::vector<int32_t> tensor_of(c->rows.size(), -1);
  for (const RecordPair& pair : c->pairs) {
    if (!pair.matched()) continue;
    const bool is_module = c->golden.records[pair.golden].is_module;
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      if (!IsJudged(*c, i)) continue;
      const Measure& m = c->measures[i];
      const int32_t number = pairs.NumberOf(c->rows[i]);
      if (number == static_cast<int32_t>(tensors.size())) tensors.emplace_back();
      tensor_of[i] = number;
      Judged& judged = tensors[number];
      (m.verdict == RowVerdict::kNoise ? judged.noise : judged.differs) = true;
      const bool moved = m.reason == Reason::kMoved;
      const Slot slot = c->golden.leaves[c->rows[i].golden].slot;
      const bool result = slot == Slot::kParameterGrad || (slot == Slot::kOutput && !is_module);
      if (moved && !judged.moved) {
        judged.maker = i;
        judged.moved = true;
      } else if (judged.maker == UINT32_MAX && result) {
        judged.maker = i;
      }
    }
  }
  for (uint32_t i = 0; i < c->rows.size(); ++i) {
    if (tensor_of[i] < 0) continue;
    const Judged& judged = tensors[tensor_of[i]];
    if (!judged.noise || !judged.differs || i == judged.maker) continue;
    Measure& m = c->measures[i];
    const RowVerdict verdict =
        judged.maker == UINT32_MAX ? RowVerdict::kDiffers : c->measures[judged.maker].verdict;
    if (m.verdict == verdict) continue;
    m.verdict = verdict;
    if (judged.maker != UINT32_MAX) {
      m.reason = c->measures[judged.maker].reason;
      m.severity = c->measures[judged.maker].severity;
    }
  }
}

}  // namespace msprobe::compare
