#include "engine/compare/measure/outside_data.h"

#include <algorithm>
#include <limits>

#include "engine/compare/judge/operations.h"
#include "engine/compare/model/fingerprint_set.h"
#include "engine/compare/model/page_release.h"
#include "engine/compare/model/rounding.h"

namespace msprobe::compare {
namespace {

bool IsExact(const Leaf& leaf) {
  const NumberKind kind = RoundingOf(leaf.dtype).kind;
  return leaf.kind == LeafKind::kTensor &&
         (kind == NumberKind::kInteger || kind == NumberKind::kBool);
}

}  // namespace

void ForEachOutsideRow(const Comparison& c, size_t pairs,
                       const std::function<bool(uint32_t row)>& body) {
  FingerprintSet known;
  PageRelease pages(c.target);
  for (const Weight& weight : c.target.weights) known.Insert(weight.fingerprint);
  for (size_t p = 0; p < pairs; ++p) {
    const RecordPair& pair = c.pairs[p];
    pages.RowsDone(pair.row_count);
    if (pair.target < 0 || c.target.records[pair.target].direction != Direction::kForward ||
        IsOptimizerCall(c.target.records[pair.target].api))  // its inputs are the run's own
      continue;
    for (uint32_t r = pair.first_row; r < pair.first_row + pair.row_count; ++r) {
      const Row& row = c.rows[r];
      if (row.target < 0) continue;
      const Leaf& leaf = c.target.leaves[row.target];
      if (leaf.kind != LeafKind::kTensor || leaf.fingerprint.empty()) continue;
      if (leaf.slot == Slot::kParameter || leaf.slot == Slot::kOutput) {
        known.Insert(leaf.fingerprint);
      } else if (row.golden >= 0 && !known.Has(leaf.fingerprint) && !body(r)) {
        return;
      }
    }
  }
}

void JudgeOutsideIntegers(Comparison* c) {
  const auto is_suspect = [&](uint32_t row) {
    return c->measures[row].reason == Reason::kOtherBits &&
           IsExact(c->target.leaves[c->rows[row].target]);
  };
  size_t end = 0;
  bool any = false;
  for (bool same = true; same && end < c->pairs.size(); ++end) {
    const RecordPair& pair = c->pairs[end];
    if (!pair.matched()) continue;
    for (uint32_t r = pair.first_row; r < pair.first_row + pair.row_count; ++r) {
      if (c->measures[r].verdict == RowVerdict::kEqual || c->rows[r].target < 0) continue;
      const Leaf& leaf = c->target.leaves[c->rows[r].target];
      if (leaf.slot == Slot::kOutput) {
        same = same && !IsExact(leaf);
      } else {
        any = any || is_suspect(r);
      }
    }
  }
  if (!any) return;
  ForEachOutsideRow(*c, end, [&](uint32_t row) {
    if (is_suspect(row)) {
      c->measures[row] = {.tensor = c->measures[row].tensor,
                          .verdict = RowVerdict::kDiffers,
                          .reason = Reason::kOtherElements,
                          .severity = std::numeric_limits<double>::infinity()};
    }
    return true;
  });
}

}  // namespace msprobe::compare
