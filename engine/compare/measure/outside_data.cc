#include "engine/compare/measure/outside_data.h"

#include "engine/compare/judge/operations.h"
#include "engine/compare/model/fingerprint_set.h"
#include "engine/compare/model/page_release.h"

namespace msprobe::compare {
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

}  // namespace msprobe::compare
