// What is kept of one pair of dumps when its comparison is freed: enough for everything that is
// said about a run of many ranks and steps.
//
//   std::vector<RankResult> results;                       // ordered by step and rank
//   results.push_back(SummarizeRank(comparison, 0, 3));
//   for (const StepOrigins& step : OriginsOfSteps(results)) ...
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/compare/explain/summary.h"
#include "engine/compare/model/comparison.h"
#include "engine/compare/ranks/rank_details.h"
#include "engine/compare/ranks/rank_origin.h"
#include "engine/compare/ranks/rank_trace.h"
#include "engine/compare/table/fail_on.h"

namespace msprobe::compare {

struct RankResult {
  int32_t step = -1, rank = -1;  // -1: without a number
  Status failed;                 // not ok: could not be compared, and there is nothing else here
  std::string target, golden;    // folders
  Mode mode = Mode::kStatistics;
  bool target_complete = true, golden_complete = true;
  Summary summary;
  FirstDivergence first;   // first.pair < 0: none
  std::string first_name;  // of its call, "" when there is none
  std::string
      otherwise;  // how calls differ, of unmatched_calls.h, where that is all there is to say
  RankTrace trace;
  std::string table;          // file with its rows; "" when none was written
  RankDetails details;        // for reports that list calls; else empty
  std::vector<FailHit> hits;  // limits that were not kept
};

RankResult SummarizeRank(const Comparison& comparison, int32_t step, int32_t rank);

// Over all: differs when one does; failed pairs and unknown ones are unknown.
RowVerdict VerdictOver(std::span<const RankResult> results);

// Of one step: where wrong numbers begin, and how they travel.
struct StepOrigins {
  int32_t step = -1;
  std::vector<size_t> results;  // indices into the results, as RankTraces were given to FindOrigins
  RankOrigins found;
};
std::vector<StepOrigins> OriginsOfSteps(std::span<const RankResult> results);

// compare_summary_TIME.csv: one line a pair.
std::string RankSummaryCsv(std::span<const RankResult> results);

}  // namespace msprobe::compare
