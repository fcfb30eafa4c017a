#include "engine/compare/regions/agreeing_gradients.h"

#include "engine/compare/judge/operations.h"
#include "engine/compare/regions/pair_rows.h"

namespace msprobe::compare {

bool GradientsAgree(const Comparison& c) {
  const PairRows rows(c);
  const bool of_modules = !HasOperations(c.target) && !HasOperations(c.golden);
  bool any = false, all = true;
  for (size_t p = 0; p < c.pairs.size() && all; ++p) {
    const Record& record = rows.RecordOf(p);
    const bool of_module = of_modules && record.direction == Direction::kParameterGrad;
    if (!of_module && !IsOptimizerCall(record.api)) continue;
    rows.EachRow(p, [&](uint32_t i) {
      rows.EachLeaf(i, [&](const Leaf& leaf, bool) {
        if (!of_module && !IsGradientOfOptimizer(record, leaf)) return;
        any = true;
        const Measure& m = c.measures[i];
        const bool joined = m.verdict == RowVerdict::kUnknown && m.reason == Reason::kOtherParts;
        all = all && (joined || !rows.IsOpen(i));
      });
    });
  }
  return any && all;
}

}  // namespace msprobe::compare
