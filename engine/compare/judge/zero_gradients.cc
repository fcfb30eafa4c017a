#include "engine/compare/judge/zero_gradients.h"

#include <algorithm>
#include <cmath>

#include "engine/compare/judge/limits.h"
#include "engine/compare/judge/operations.h"

namespace msprobe::compare {

bool IsZeroGradient(const Comparison& c, const RecordPair& pair, uint32_t i) {
  const Row& row = c.rows[i];
  if (!pair.matched() || row.target < 0 || row.golden < 0) return false;
  if (c.measures[i].verdict == RowVerdict::kEqual) return false;
  const Leaf &t = c.target.leaves[row.target], &g = c.golden.leaves[row.golden];
  const Record &of_t = c.target.records[pair.target], &of_g = c.golden.records[pair.golden];
  if (t.kind != LeafKind::kTensor || g.kind != LeafKind::kTensor) return false;
  if (t.slot != Slot::kParameterGrad && !IsGradientOfOptimizer(of_t, t)) return false;
  const double norm = std::max(t.norm_value, g.norm_value),
               count = static_cast<double>(g.shape.elements());
  if (!std::isfinite(t.norm_value + g.norm_value) || !(norm > 0) || !(count > 0)) return false;
  const double terms = std::max(SummedMagnitude(OperationsOf(c), c.target, of_t, t),
                                SummedMagnitude(OperationsOf(c), c.golden, of_g, g));
  const Rounding r = RoundingOfRow(c, static_cast<int32_t>(i));
  return norm / std::sqrt(count) <= Limits(c, of_g.api).Explained(r) * r.epsilon * terms;
}

}  // namespace msprobe::compare
