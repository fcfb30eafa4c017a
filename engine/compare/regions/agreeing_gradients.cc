#include "engine/compare/regions/agreeing_gradients.h"

#include "engine/compare/judge/limits.h"
#include "engine/compare/judge/operations.h"
#include "engine/compare/regions/pair_rows.h"

namespace msprobe::compare {

namespace {

// What is computed by other calls rounds otherwise in each of them: at the end of the step the
// differences have grown to so many times what one call explains.
constexpr double kGrown = 8;

// Whether a gradient that differs is apart by no more than rounding that has grown.
bool HasGrown(const Comparison& c, uint32_t i) {
  const Row& row = c.rows[i];
  const Measure& m = c.measures[i];
  if (row.target < 0 || row.golden < 0 || m.verdict != RowVerdict::kDiffers) return false;
  const bool by_size = m.reason == Reason::kNone || m.reason == Reason::kDTypeDiffers ||
                       m.reason == Reason::kCoarserBefore;
  const Record& made = c.golden.records[c.golden.leaves[row.golden].record];
  // In the roundings of the dtype that the row was judged by, as its severity is.
  const double explained = Limits(c, made.api).Explained(RoundingOfRow(c, static_cast<int32_t>(i)));
  return by_size && m.severity <= kGrown * explained;
}

}  // namespace

bool GradientsAgree(const Comparison& c) {
  const PairRows rows(c);
  const bool of_modules = !HasOperations(c.target) && !HasOperations(c.golden);
  bool any = false, all = true;
  for (size_t p = 0; p < c.pairs.size() && all; ++p) {
    const Record& record = rows.RecordOf(p);
    const bool of_module = of_modules && record.direction == Direction::kParameterGrad;
    if (!of_module && !IsOptimizerCall(record.api)) continue;
    if (c.IsPartOfBatch(static_cast<int32_t>(p))) {
      any = true;
      continue;
    }
    rows.EachRow(p, [&](uint32_t i) {
      rows.EachLeaf(i, [&](const Leaf& leaf, bool) {
        if (!of_module && !IsGradientOfOptimizer(record, leaf)) return;
        any = true;
        const Measure& m = c.measures[i];
        const bool joined = m.verdict == RowVerdict::kUnknown && m.reason == Reason::kOtherParts;
        all = all && (joined || !rows.IsOpen(i) || HasGrown(c, i));
      });
    });
  }
  return any && all;
}

}  // namespace msprobe::compare
