#include "engine/compare/regions/without_effect.h"

#include <cstdint>
#include <vector>

#include "engine/compare/regions/pair_rows.h"
#include "engine/compare/regions/value_flow.h"

namespace msprobe::compare {

bool ForgiveWithoutEffect(Comparison* c) {
  const PairRows rows(*c);
  std::vector<uint32_t> forgiven;
  for (size_t p = 0; p < c->pairs.size(); ++p) {
    if (c->IsRewritten(static_cast<int32_t>(p))) continue;
    if (!c->pairs[p].matched()) return false;
    const bool backward = rows.RecordOf(p).direction == Direction::kBackward;
    bool other = false, agrees = false;
    const size_t before = forgiven.size();
    rows.EachRow(p, [&](uint32_t i) {
      const Row& row = c->rows[i];
      const RowVerdict verdict = c->measures[i].verdict;
      if (row.target < 0 || row.golden < 0) return;
      const Leaf& leaf = c->target.leaves[row.target];
      if (verdict == RowVerdict::kDiffers) {
        if (backward && IsTensorArgument(leaf))
          forgiven.push_back(i);
        else
          other = true;
      } else if (IsTensorResult(leaf)) {
        agrees |= verdict == RowVerdict::kEqual || verdict == RowVerdict::kNoise;
      }
    });
    if (other || (forgiven.size() > before && !agrees)) return false;
  }
  for (const uint32_t i : forgiven) {
    Measure& m = c->measures[i];
    m = {.tensor = m.tensor, .verdict = RowVerdict::kUnknown, .reason = Reason::kWithoutEffect};
  }
  return !forgiven.empty();
}

}  // namespace msprobe::compare
