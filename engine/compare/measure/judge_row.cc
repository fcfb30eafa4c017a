#include "engine/compare/measure/judge_row.h"

#include <limits>

#include "engine/compare/judge/judge.h"
#include "engine/compare/judge/operations.h"
#include "engine/compare/model/rounding.h"

namespace msprobe::compare {

bool HasOtherArguments(const Comparison& c, const RecordPair& pair) {
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    if (c.measures[i].reason == Reason::kValueDiffers) return true;
  }
  return false;
}

RowJudge::RowJudge(const Comparison& comparison, const RecordPair& pair)
    : c_(comparison), record_(comparison.golden.records[pair.golden]) {}

void RowJudge::Judge(uint32_t row, ElementType noise_dtype, Measure* m) {
  const Leaf &target = c_.target.leaves[c_.rows[row].target],
             &golden = c_.golden.leaves[c_.rows[row].golden];
  // null against a value is a difference only within one tool: another tool may write null for a
  // value that it cannot record.
  if ((target.kind == LeafKind::kNone) != (golden.kind == LeafKind::kNone) &&
      c_.target.dialect == c_.golden.dialect) {
    *m = {.verdict = RowVerdict::kDiffers,
          .reason = Reason::kKindDiffers,
          .severity = std::numeric_limits<double>::infinity()};
    return;
  }
  JudgeOptions options{.tolerance = c_.tolerance,
                       .noise_dtype = noise_dtype,
                       .target_rest = c_.target.RestOf(c_.rows[row].target),
                       .golden_rest = c_.golden.RestOf(c_.rows[row].golden)};
  options.explained =
      c_.Thresholds().Explained(record_.api, JudgedType(target.dtype, golden.dtype, noise_dtype));
  JudgeLeaves(target, golden, c_.mode, options, m);
  // The number of summed terms takes time to find: it is needed only for numbers that differ.
  if (target.slot != Slot::kOutput || m->verdict == RowVerdict::kEqual) return;
  if (terms_ < 0) terms_ = SummedTerms(c_.golden, record_);
  options.terms = terms_;
  options.magnitude = SummedMagnitude(c_.golden, record_, golden);
  JudgeLeaves(target, golden, c_.mode, options, m);
}

}  // namespace msprobe::compare
