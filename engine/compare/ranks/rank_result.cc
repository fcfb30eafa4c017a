#include "engine/compare/ranks/rank_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/model/record_keys.h"
#include "engine/compare/ranks/compiled_runs.h"
#include "engine/compare/ranks/wrong_updates.h"
#include "engine/formats/tables/csv.h"

namespace msprobe::compare {

Message DescribeOtherwise(const Findings& found) {
  const RunVerdict verdict = found.summary.verdict;
  if (found.first.pair >= 0 ||
      (verdict != RunVerdict::kDiffers && verdict != RunVerdict::kStructure))
    return {};
  return Message::Joined({found.other_arguments, found.unmatched_calls}, "; ");
}

RankResult SummarizeRank(const Comparison& c, int32_t step, int32_t rank) {
  RankResult r;
  static_cast<Findings&>(r) = FindingsOf(c);
  r.step = step;
  r.rank = rank;
  r.target = DirectoryName(c.target.path);
  r.golden = DirectoryName(c.golden.path);
  r.is_empty = c.target.records.empty() && c.golden.records.empty();
  r.judged = CheckSomethingWasJudged(c);
  r.otherwise = DescribeOtherwise(r);
  if (Message compiled = DescribeCompiledRuns(r.target, r.golden); !compiled.empty())
    r.not_observed.insert(r.not_observed.begin(), std::move(compiled));
  r.trace = TraceRank(c, rank);
  r.collectives = CollectiveOrderOf(c, rank);
  r.weights = WeightsIn(c);
  r.target_weights = c.target.began_with;
  r.golden_weights = c.golden.began_with;
  if (OfTwoFrameworks(c.target, c.golden)) {
    r.target_is_mindspore = c.target.framework == "mindspore";
    r.golden_is_mindspore = !r.target_is_mindspore;
  }
  r.thresholds = c.thresholds;
  r.tolerance = c.tolerance;
  return r;
}

Limits LimitsOf(const RankResult& r) {
  return {r.thresholds ? *r.thresholds : ThresholdTable::Shipped(), r.tolerance, ""};
}

StepOfRank AsStep(const RankResult& r) {
  const bool agrees = r.failed.ok() && r.judged.ok() && r.first.pair < 0;
  const bool rounds = r.rounding_of_step >= 0 || r.largest_noise > 0;
  return {r.step, agrees, agrees && rounds, &r.weights};
}

namespace {

// The result of the same rank in the last step before; null: there is none.
const RankResult* ResultBefore(std::span<const RankResult> results, const RankResult& result) {
  const RankResult* before = nullptr;
  for (const RankResult& r : results) {
    if (r.rank != result.rank || r.step >= result.step || !r.failed.ok()) continue;
    if (before == nullptr || r.step > before->step) before = &r;
  }
  return before;
}

void CountAsNoise(Summary* s) {
  const auto count = [](auto& counts, auto from, auto to) {
    counts[static_cast<int>(to)] += std::exchange(counts[static_cast<int>(from)], 0);
  };
  count(s->rows, RowVerdict::kDiffers, RowVerdict::kNoise);
  count(s->calls, CallClass::kIntroduced, CallClass::kNoise);
  count(s->calls, CallClass::kInherited, CallClass::kNoise);
  if (s->verdict == RunVerdict::kDiffers) s->verdict = RunVerdict::kNoise;
}

}  // namespace

void CountAsCarriedRounding(int32_t step_before, RankResult* result) {
  RankResult& r = *result;
  r.rounding_of_step = step_before;
  r.first = {};
  r.first_name = {};
  r.trace = {};
  r.others.clear();
  r.more_others = 0;
  CountAsNoise(&r.summary);
  r.not_observed.insert(
      r.not_observed.begin(),
      "step {} begins with weights that the rounding of step {} moved apart: what differs in it is "
      "counted as rounding"_t(r.step, step_before));
}

void ForgiveCarriedRounding(std::span<RankResult> results) {
  for (RankResult& r : results) {
    if (!r.failed.ok() || r.first.pair < 0) continue;
    // Of a joined run relations know the error with which each weight was left.
    if (!r.target_weights.empty() || !r.golden_weights.empty()) continue;
    const RankResult* before = ResultBefore(results, r);
    if (before == nullptr) continue;
    const RankResult* first = ResultBefore(results, *before);
    const StepOfRank of_first = first == nullptr ? StepOfRank() : AsStep(*first);
    if (CarriesRounding(AsStep(*before), AsStep(r), first == nullptr ? nullptr : &of_first) ||
        FilesCarryRounding(*before, r))
      CountAsCarriedRounding(before->step, &r);
  }
}

void CountEmptyPairsAsEqual(std::span<RankResult> results) {
  const auto judged = [](const RankResult& r) { return r.failed.ok() && r.judged.ok(); };
  if (std::none_of(results.begin(), results.end(), judged)) return;
  for (RankResult& r : results) {
    if (!r.failed.ok() || !r.is_empty) continue;
    std::erase_if(r.not_observed,
                  [](const Message& line) { return line.English().ends_with(" holds no record"); });
    r.not_observed.push_back(
        r.rank < 0 ? "step {} holds no record on either side"_t(r.step)
                   : "step {}, rank {} holds no record on either side"_t(r.step, r.rank));
    r.summary.verdict = RunVerdict::kEqual;
    r.judged = Status::Ok();
    r.not_judged = {};
  }
}

RunVerdict VerdictOver(std::span<const RankResult> results) {
  if (results.empty()) return RunVerdict::kUnknown;
  RunVerdict worst = RunVerdict::kEqual;
  for (const RankResult& r : results)
    worst = std::max(worst, r.failed.ok() ? r.summary.verdict : RunVerdict::kUnknown);
  return worst;
}

int32_t FirstWrongStep(std::span<const RankResult> results) {
  const auto wrong = std::find_if(results.begin(), results.end(), [](const RankResult& r) {
    return r.failed.ok() && r.first.pair >= 0;
  });
  const bool steps = !results.empty() && results.front().step != results.back().step;
  return wrong == results.end() || !steps ? -1 : wrong->step;
}

Message InheritedFrom(const RankResult& result, int32_t first_wrong_step) {
  const bool later = first_wrong_step >= 0 && result.step > first_wrong_step;
  return later && result.failed.ok() && result.first.pair >= 0
             ? "inherited from step {}"_t(first_wrong_step)
             : Message();
}

StepState StateOf(const RankResult& result, int32_t first_wrong_step) {
  if (result.rounding_of_step >= 0) return StepState::kRounding;
  const bool inherited =
      result.wrong_update_after >= 0 || !InheritedFrom(result, first_wrong_step).empty();
  return inherited ? StepState::kInherited : StepState::kOwn;
}

CallClass ClassInStep(CallClass in_itself, StepState state) {
  const bool wrong = in_itself == CallClass::kIntroduced || in_itself == CallClass::kInherited;
  if (!wrong || state == StepState::kOwn) return in_itself;
  return state == StepState::kRounding ? CallClass::kNoise : CallClass::kInherited;
}

std::vector<StepOrigins> OriginsOfSteps(std::span<const RankResult> results) {
  std::vector<StepOrigins> steps;
  for (size_t i = 0; i < results.size();) {
    StepOrigins& step = steps.emplace_back(StepOrigins{.step = results[i].step});
    std::vector<RankTrace> traces;
    for (; i < results.size() && results[i].step == step.step; ++i) {
      if (!results[i].failed.ok()) continue;
      step.results.push_back(i);
      traces.push_back(results[i].trace);
    }
    step.found = FindOrigins(traces);
  }
  return steps;
}

std::vector<StepOrigins>::const_iterator FirstWithOrigin(const std::vector<StepOrigins>& steps) {
  return std::find_if(steps.begin(), steps.end(),
                      [](const StepOrigins& step) { return !step.found.origins.empty(); });
}

std::vector<RankPlace> PlacesOf(const StepOrigins& step, std::span<const RankResult> results) {
  std::vector<RankPlace> places;
  for (const RankOrigin& origin : step.found.origins) {
    const RankResult& result = results[step.results[origin.trace]];
    const auto same = std::find_if(places.begin(), places.end(), [&](const RankPlace& p) {
      return p.result->first_name == result.first_name &&
             p.origin->in_exchange == origin.in_exchange &&
             p.origin->exchanges_before == origin.exchanges_before;
    });
    if (same != places.end()) {
      same->ranks.push_back(result.rank);
    } else {
      places.push_back({&origin, &result, {result.rank}});
    }
  }
  for (RankPlace& place : places) std::sort(place.ranks.begin(), place.ranks.end());
  return places;
}

std::string FirstPlaceJson(std::span<const RankResult> results) {
  const std::vector<StepOrigins> steps = OriginsOfSteps(results);
  const auto first = FirstWithOrigin(steps);
  if (first == steps.end()) return "null";
  const RankPlace place = std::move(PlacesOf(*first, results).front());
  // The keys of the document: the rank of a run that is not distributed is "".
  const auto key = [](int32_t n) { return n < 0 ? std::string() : fmt::format("{}", n); };
  std::string ranks;
  for (const int32_t rank : place.ranks)
    ranks += fmt::format("{}\"{}\"", ranks.empty() ? "" : ", ", key(rank));
  std::string json =
      fmt::format("{{\"step\": {}, \"rank\": \"{}\", \"ranks\": [{}], \"exchange\": {}, \"name\": ",
                  first->step < 0 ? "null" : fmt::format("\"{}\"", first->step),
                  key(place.result->rank), ranks, place.origin->in_exchange);
  AppendJsonString(&json, place.result->first_name.English());
  return json + '}';
}

Message DescribeStepBefore(std::span<const RankResult> results, const RankResult& result) {
  if (result.wrong_update_after >= 0) return {};  // it is the first divergence itself
  const std::vector<std::string>* order = &result.weights.file_order;
  for (const RankResult& r : results) {
    const bool earlier = r.rank == result.rank && r.step < result.step && r.failed.ok();
    if (earlier && !r.weights.file_order.empty()) order = &r.weights.file_order;
  }
  const RankResult* before = ResultBefore(results, result);
  return before == nullptr ? Message()
                           : DescribeBetweenSteps(AsStep(*before), AsStep(result), *order);
}

std::string RankSummaryCsv(std::span<const RankResult> results) {
  formats::CsvWriter csv;
  for (const std::string_view name :
       {"Step", "Rank", "Verdict", "First divergence", "Class", "Confidence", "Source line",
        "Calls equal", "Calls noise", "Calls introduced", "Calls inherited", "Calls unknown",
        "Calls in target only", "Calls in golden only", "Table", "Error"}) {
    csv.NumberCell(name);
  }
  // A file of tables that have all rows is as it was before rows could be left out.
  const bool left_out = std::ranges::any_of(
      results, [](int64_t n) { return n > 0; }, &RankResult::rows_left_out);
  if (left_out) csv.NumberCell("Rows left out");
  csv.EndRow();
  const int32_t first_wrong_step = FirstWrongStep(results);
  const auto number = [&](int64_t n) { n < 0 ? csv.NumberCell("") : csv.IntegerCell(n); };
  for (const RankResult& r : results) {
    number(r.step), number(r.rank);
    if (!r.failed.ok()) {
      csv.NumberCell("failed");
      for (int i = 0; i < 12; ++i) csv.NumberCell("");
      csv.TextCell(r.failed.message());
      if (left_out) csv.NumberCell("");
      csv.EndRow();
      continue;
    }
    csv.NumberCell(RunVerdictName(r.summary.verdict));
    csv.TextCell(r.first_name.English());
    const bool wrong = r.first.pair >= 0;
    const std::string inherited = InheritedFrom(r, first_wrong_step).English();
    csv.NumberCell(!wrong              ? ""
                   : inherited.empty() ? ClassName(r.first.call_class)
                                       : std::string_view(inherited));
    wrong ? csv.NumberCell(fmt::format("{:.3f}", r.first.confidence)) : csv.NumberCell("");
    csv.TextCell(r.first.source_line);
    for (const int64_t calls : r.summary.calls) csv.IntegerCell(calls);
    csv.IntegerCell(r.summary.target_only_calls);
    csv.IntegerCell(r.summary.golden_only_calls);
    csv.TextCell(BaseName(r.table));
    csv.NumberCell("");
    if (left_out) csv.IntegerCell(r.rows_left_out);
    csv.EndRow();
  }
  return std::string(csv.text());
}

}  // namespace msprobe::compare
