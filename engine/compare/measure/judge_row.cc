#include "engine/compare/measure/judge_row.h"

#include <algorithm>
#include <limits>

#include "engine/compare/judge/judge.h"
#include "engine/compare/judge/operations.h"
#include "engine/compare/model/record_keys.h"
#include "engine/compare/model/rounding.h"

namespace msprobe::compare {

bool HasOtherArguments(const Comparison& c, const RecordPair& pair) {
  for (uint32_t i = pair.first_row; i < pair.first_row + pair.row_count; ++i) {
    if (c.measures[i].reason == Reason::kValueDiffers) return true;
  }
  return false;
}

double TermsOf(const Comparison& c, const RecordPair& pair) {
  const double golden = SummedTerms(OperationsOf(c), c.golden, c.golden.records[pair.golden]);
  if (!OfTwoFrameworks(c.target, c.golden)) return golden;
  return std::max(golden, SummedTerms(OperationsOf(c), c.target, c.target.records[pair.target]));
}

double MagnitudeOf(const Comparison& c, const RecordPair& pair, uint32_t row) {
  const Row& r = c.rows[row];
  const double golden = SummedMagnitude(OperationsOf(c), c.golden, c.golden.records[pair.golden],
                                        c.golden.leaves[r.golden]);
  if (!OfTwoFrameworks(c.target, c.golden)) return golden;
  return std::max(golden, SummedMagnitude(OperationsOf(c), c.target, c.target.records[pair.target],
                                          c.target.leaves[r.target]));
}

RowJudge::RowJudge(const Comparison& comparison, const RecordPair& pair)
    : c_(comparison),
      pair_(pair),
      record_(comparison.golden.records[pair.golden]),
      frameworks_(OfTwoFrameworks(comparison.target, comparison.golden)) {}

// The statistics of a matrix are those of its transpose.
void RowJudge::JudgeTransposed(uint32_t row, Measure* m) {
  const Leaf& target = c_.target.leaves[c_.rows[row].target];
  Leaf golden = c_.golden.leaves[c_.rows[row].golden];
  golden.shape = target.shape;
  golden.fingerprint = golden.checksum = TextRef();
  const JudgeOptions options{.limits = Limits(c_, record_.api), .terms = TermsOf(c_, pair_)};
  JudgeLeaves(target, golden, c_.mode, options, m);
  if (m->reason == Reason::kNone || m->reason == Reason::kDTypeDiffers)
    m->reason = Reason::kTransposed;
}

void RowJudge::Judge(uint32_t row, ElementType noise_dtype, Measure* m) {
  Judge(row, noise_dtype, false, m);
}

RowVerdict RowJudge::VerdictOf(uint32_t row, ElementType noise_dtype) {
  Measure m;
  Judge(row, noise_dtype, true, &m);
  return m.verdict;
}

void RowJudge::Judge(uint32_t row, ElementType noise_dtype, bool verdict_only, Measure* m) {
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
  // What nothing relates in two joined runs has no numbers, and a fingerprint that tells where it
  // goes.
  if (!c_.target.ranks.empty() && !c_.golden.ranks.empty() && !target.has_stats &&
      !golden.has_stats && target.kind == LeafKind::kTensor) {
    *m = {.verdict = RowVerdict::kUnknown, .reason = Reason::kNoCommonNumber};
    return;
  }
  if (frameworks_ && IsTransposed(target.shape, golden.shape)) return JudgeTransposed(row, m);
  JudgeOptions options{.limits = Limits(c_, record_.api),
                       .noise_dtype = noise_dtype,
                       .target_rest = c_.target.RestOf(c_.rows[row].target),
                       .golden_rest = c_.golden.RestOf(c_.rows[row].golden)};
  JudgeLeaves(target, golden, c_.mode, options, m);
  // The number of summed terms takes time to find: it is needed only for numbers that differ.
  const bool made = target.slot == Slot::kOutput || target.slot == Slot::kParameterGrad ||
                    IsGradientOfOptimizer(record_, golden) || IsStateOfOptimizer(record_, golden);
  if (!made || m->verdict == RowVerdict::kEqual) return;
  // More terms and a larger magnitude explain more: what is noise without them stays noise.
  if (verdict_only && m->verdict == RowVerdict::kNoise) return;
  if (terms_ < 0) terms_ = TermsOf(c_, pair_);
  options.terms = terms_;
  options.magnitude = MagnitudeOf(c_, pair_, row);
  JudgeLeaves(target, golden, c_.mode, options, m);
}

}  // namespace msprobe::compare
