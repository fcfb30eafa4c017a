// What is kept of the comparison of one pair of dumps when that comparison is freed. Reports on
// many ranks and steps are made from it.
//
//   std::vector<RankResult> results;                       // ordered by step and rank
//   results.push_back(SummarizeRank(comparison, 0, 3));
//   for (const StepOrigins& step : OriginsOfSteps(results)) ...
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/compare/explain/findings.h"
#include "engine/compare/judge/limits.h"
#include "engine/compare/model/comparison.h"
#include "engine/compare/ranks/between_steps.h"
#include "engine/compare/ranks/collective_order.h"
#include "engine/compare/ranks/rank_details.h"
#include "engine/compare/ranks/rank_origin.h"
#include "engine/compare/ranks/rank_trace.h"
#include "engine/compare/table/fail_on.h"

namespace msprobe::compare {

struct RankResult : Findings {
  int32_t step = -1, rank = -1;  // -1: without a number
  Status failed;                 // not ok: the pair could not be compared; all else is empty
  std::string target, golden;    // folders
  // Of a side that was joined of several ranks: the weights with which its step began.
  std::vector<StepWeight> target_weights, golden_weights;
  bool is_empty = false;  // neither side holds a record
  Status judged;          // not ok: the dumps were read, but no value was judged; says why
  Message otherwise;      // DescribeOtherwise
  // The step before, within rounding, whose rounding moved the weights apart with which this one
  // begins; -1: there is none. Such a step has no first divergence.
  int32_t rounding_of_step = -1;
  // The step before whose update of the weights is the first divergence (wrong_updates.h); -1: it
  // is a call.
  int32_t wrong_update_after = -1;
  RankTrace trace;
  CollectiveOrder collectives;
  StepWeights weights;
  // Of two frameworks: whose names of weights are those of MindSpore.
  bool target_is_mindspore = false, golden_is_mindspore = false;
  // The limits of its comparison.
  std::shared_ptr<const ThresholdTable> thresholds;  // null: the shipped ones
  double tolerance = 1;
  std::string table;          // file with its rows; "" when none was written
  int64_t rows_left_out = 0;  // of the table, because they agree
  RankDetails details;        // for reports that list calls; else empty
  std::vector<FailHit> hits;  // conditions of --fail-on that are met
};

// The limits for values that belong to no call: weights between two steps.
Limits LimitsOf(const RankResult& result);

// What the rules on steps need of a result.
StepOfRank AsStep(const RankResult& result);

// When all numbers agree: which calls and arguments differ (unmatched_calls.h); else "".
Message DescribeOtherwise(const Findings& found);

RankResult SummarizeRank(const Comparison& comparison, int32_t step, int32_t rank);

// Finds the steps that begin with other weights only because the step before was within rounding,
// and not bit-equal (CarriesRounding): their first divergence is no one's fault. `results` are
// ordered by step.
void ForgiveCarriedRounding(std::span<RankResult> results);

// Counts pairs of which neither side holds a record as equal, if a value of another pair was
// judged: a server that waits for a request has begun a step on both sides. Nothing is said of a
// run when no pair holds a record.
void CountEmptyPairsAsEqual(std::span<RankResult> results);

// Makes the result that of a step whose differences are the rounding of the step before.
void CountAsCarriedRounding(int32_t step_before, RankResult* result);

// The verdict over all pairs: the worst one. A pair that could not be compared is unknown.
RunVerdict VerdictOver(std::span<const RankResult> results);

// The first step in which a number is wrong; -1: there is none, or the results have one step. What
// is wrong in the steps behind it may come from the weights or data of that step: no call of theirs
// is said to introduce an error.
int32_t FirstWrongStep(std::span<const RankResult> results);
// Whether the error of the result was there in an earlier step: "inherited from step 3"; else "".
Message InheritedFrom(const RankResult& result, int32_t first_wrong_step);

// What the steps before one say of the differences in it.
enum class StepState : uint8_t {
  kOwn,        // they begin in it, or there are none
  kInherited,  // they were there in an earlier step, or the update before it made them
  kRounding,   // they are the rounding of the step before
};
inline constexpr StepState kStepStates[] = {StepState::kOwn, StepState::kInherited,
                                            StepState::kRounding};
// To be asked after JudgeSteps (wrong_updates.h).
StepState StateOf(const RankResult& result, int32_t first_wrong_step);
// The class of a call in such a step: where an error is inherited, no call introduces it.
CallClass ClassInStep(CallClass in_itself, StepState state);

// Where wrong numbers begin in one step, and which exchanges bring them to other ranks.
struct StepOrigins {
  int32_t step = -1;
  std::vector<size_t> results;  // for each trace of `found` the index of its result
  RankOrigins found;
};
std::vector<StepOrigins> OriginsOfSteps(std::span<const RankResult> results);
// The first step in which wrong numbers begin; end(): there is none.
std::vector<StepOrigins>::const_iterator FirstWithOrigin(const std::vector<StepOrigins>& steps);

// A place where wrong numbers begin in one step. Origins at the same call on several ranks are one.
struct RankPlace {
  const RankOrigin* origin;    // of the first rank
  const RankResult* result;    // of the first rank
  std::vector<int32_t> ranks;  // in increasing order
};
// The first divergence is the first one.
std::vector<RankPlace> PlacesOf(const StepOrigins& step, std::span<const RankResult> results);

// The first divergence over all steps and ranks, as `"first": {...}` in the JSON of several dumps:
// where it is among them. "null": there is none.
std::string FirstPlaceJson(std::span<const RankResult> results);

// DescribeBetweenSteps for one of the results and the step before it of the same rank.
Message DescribeStepBefore(std::span<const RankResult> results, const RankResult& result);

// The content of compare_summary_TIME.csv: one line for each pair.
std::string RankSummaryCsv(std::span<const RankResult> results);

}  // namespace msprobe::compare
