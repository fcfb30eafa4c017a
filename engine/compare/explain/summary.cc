#include "engine/compare/explain/summary.h"

#include "engine/compare/judge/judge.h"

namespace msprobe::compare {

Summary Summarize(const Comparison& c) {
  Summary s;
  for (size_t i = 0; i < c.measures.size(); ++i) {
    const Measure& m = c.measures[i];
    ++s.rows[static_cast<int>(m.verdict)];
    s.neutral_rows += IsNeutral(m);
    s.target_only_rows += c.rows[i].golden < 0;
    s.golden_only_rows += c.rows[i].target < 0;
    s.unreadable_rows += m.reason == Reason::kNoFile || m.reason == Reason::kBadFile;
  }
  for (size_t p = 0; p < c.pairs.size(); ++p) {
    ++s.calls[static_cast<int>(c.classes[p])];
    s.target_only_calls += c.pairs[p].golden < 0;
    s.golden_only_calls += c.pairs[p].target < 0;
    s.aligned_calls += c.pairs[p].match == Match::kAligned;
  }
  const int64_t judged = s.rows[0] + s.rows[1] + s.rows[2];
  // A call that one run did not make is a difference. A run that was killed may have made it later.
  const bool other_calls = (s.target_only_calls > 0 && c.golden.complete) ||
                           (s.golden_only_calls > 0 && c.target.complete);
  if (s.rows[static_cast<int>(RowVerdict::kDiffers)] > 0 || (other_calls && judged > 0)) {
    s.verdict = RowVerdict::kDiffers;
  } else if (judged == 0 || s.rows[static_cast<int>(RowVerdict::kUnknown)] > s.neutral_rows) {
    s.verdict = RowVerdict::kUnknown;
  } else {
    s.verdict =
        s.rows[static_cast<int>(RowVerdict::kNoise)] > 0 ? RowVerdict::kNoise : RowVerdict::kEqual;
  }
  return s;
}

}  // namespace msprobe::compare
