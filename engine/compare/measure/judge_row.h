// Judges one row by what both dumps recorded of it.
#pragma once

#include <cstdint>

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Whether a plain argument of the two calls differs, as eps=1e-5 and eps=1e-6 do. The error of such
// a call's results has another reason than rounding.
bool HasOtherArguments(const Comparison& comparison, const RecordPair& pair);

// SummedTerms and SummedMagnitude (operations.h) of a pair and of one of its rows. One framework
// may compute by several calls what the other computes by one (the gradient of a bias by BiasAdd):
// the larger number of the two sides counts.
double TermsOf(const Comparison& comparison, const RecordPair& pair);
double MagnitudeOf(const Comparison& comparison, const RecordPair& pair, uint32_t row);

// Judges the rows of one pair, one after the other. What is known of the call is found once.
//
//   RowJudge judge(comparison, pair);
//   judge.Judge(row, ElementType(), &measure);
class RowJudge {
 public:
  // Both are referenced. The pair has both sides.
  RowJudge(const Comparison& comparison, const RecordPair& pair);

  // `row`: an index into Comparison::rows, with a leaf on both sides. `noise_dtype`: the dtype to
  // judge a float by when it is coarser than the row's own; empty: none. Fills verdict, reason and
  // severity.
  void Judge(uint32_t row, ElementType noise_dtype, Measure* measure);
  // The same verdict in less time; the severity may be too large.
  RowVerdict VerdictOf(uint32_t row, ElementType noise_dtype);

 private:
  void Judge(uint32_t row, ElementType noise_dtype, bool verdict_only, Measure* measure);
  void JudgeTransposed(uint32_t row, Measure* measure);

  const Comparison& c_;
  const RecordPair& pair_;
  const Record& record_;   // the golden's
  const bool frameworks_;  // one dump is of MindSpore, the other is not
  double terms_ = -1;      // SummedTerms of the call; -1: not asked yet
};

}  // namespace msprobe::compare
