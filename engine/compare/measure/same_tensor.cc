#include "engine/compare/measure/same_tensor.h"

#include <vector>

#include "engine/compare/model/content_map.h"
#include "engine/compare/model/record_keys.h"

namespace msprobe::compare {
namespace {

// What all rows of one pair of tensors say.
struct Judged {
  bool noise = false, differs = false;
  uint32_t maker = UINT32_MAX;  // the row that decides, once one is known
  bool moved = false;           // it differs because moving does not round
};

// 0: the row is no pair of tensors with digests, or it is neither noise nor different.
uint64_t KeyOf(const Comparison& c, uint32_t i) {
  const Row& row = c.rows[i];
  const RowVerdict verdict = c.measures[i].verdict;
  if (row.target < 0 || row.golden < 0) return 0;
  if (verdict != RowVerdict::kNoise && verdict != RowVerdict::kDiffers) return 0;
  const Leaf &target = c.target.leaves[row.target], &golden = c.golden.leaves[row.golden];
  const auto has_digest = [](const Leaf& leaf) {
    return leaf.kind == LeafKind::kTensor && (!leaf.fingerprint.empty() || !leaf.checksum.empty());
  };
  if (!has_digest(target) || !has_digest(golden)) return 0;
  constexpr uint64_t kOther = 0x9e3779b97f4a7c15;  // the two sides must not cancel each other
  const uint64_t key = ContentKey(target) ^ (ContentKey(golden) * kOther);
  return key == 0 ? 1 : key;
}

}  // namespace

void GiveOneVerdictToEachTensor(Comparison* c) {
  ContentMap numbers;
  std::vector<Judged> tensors;
  std::vector<int32_t> tensor_of(c->rows.size(), -1);
  for (const RecordPair& pair : c->pairs) {
    if (!pair.matched()) continue;
    const bool is_module = c->golden.records[pair.golden].is_module;
    for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
      const uint64_t key = KeyOf(*c, i);
      if (key == 0) continue;
      const Measure& m = c->measures[i];
      const int32_t number = numbers.Insert(key, static_cast<int32_t>(tensors.size()));
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
