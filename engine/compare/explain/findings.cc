#include "engine/compare/explain/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "engine/compare/explain/evidence.h"
#include "engine/compare/explain/first_bits.h"
#include "engine/compare/explain/unmatched_calls.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/model/record_keys.h"
#include "engine/compare/regions/regions.h"

namespace msprobe::compare {
namespace {

constexpr size_t kMostCalls = 8, kMostNames = 4;

Findings::Side SideOf(const Comparison& c, bool target) {
  const Dump& dump = target ? c.target : c.golden;
  Findings::Side side{.dump = dump.path,
                      .dialect = dump.dialect == Dialect::kNone ? "" : dump.DialectName().English(),
                      .calls = static_cast<int64_t>(dump.records.size()),
                      .values = static_cast<int64_t>(dump.leaves.size()),
                      .complete = dump.complete};
  for (size_t p = 0; p < c.pairs.size() && side.only_here.size() < kMostNames; ++p) {
    if ((target ? c.pairs[p].golden : c.pairs[p].target) < 0 &&
        !c.IsCompiled(static_cast<int32_t>(p)))
      side.only_here.emplace_back(EntryName(c, static_cast<int32_t>(p)));
  }
  return side;
}

void AddCallsThatDiffer(const Comparison& c, Findings* found) {
  for (int32_t p = 0; p < static_cast<int32_t>(c.pairs.size()); ++p) {
    if (p == c.first.pair || !c.pairs[p].matched()) continue;
    const auto row = c.measures.begin() + c.pairs[p].first_row;
    if (std::none_of(row, row + c.pairs[p].row_count,
                     [](const Measure& m) { return m.verdict == RowVerdict::kDiffers; }))
      continue;
    if (found->others.size() >= kMostCalls) {
      ++found->more_others;
      continue;
    }
    const CallSummary call = SummarizeCall(c, p);
    const SideSummary& side = call.out.differs  ? call.out
                              : call.in.differs ? call.in
                                                : call.arguments;
    const Measure& m = c.measures[side.worst_row];
    const bool measured = m.reason != Reason::kValueDiffers && !std::isnan(m.severity);
    found->others.push_back({.name = std::string(EntryName(c, p)),
                             .what = DescribeError(c, side.worst_row),
                             .roundings = measured ? ShortNumber(m.severity) : "-",
                             .call_class = c.classes[p]});
  }
}

void AddLargestNoise(const Comparison& c, Findings* found) {
  size_t largest = c.measures.size();
  for (size_t row = 0; row < c.measures.size(); ++row) {
    const Measure& m = c.measures[row];
    if (m.verdict != RowVerdict::kNoise || !(m.severity > found->largest_noise)) continue;
    found->largest_noise = m.severity;
    largest = row;
  }
  if (largest == c.measures.size()) return;
  const Message reason = ReasonText(c.measures[largest].reason);
  if (reason.empty()) return;
  const Row& row = c.rows[largest];
  const Leaf& leaf = row.target >= 0 ? c.target.leaves[row.target] : c.golden.leaves[row.golden];
  found->why_largest_noise = Message::Joined({Message(leaf.name), reason}, ": ");
}

}  // namespace

Findings FindingsOf(const Comparison& c) {
  Findings found{.mode = c.mode,
                 .summary = Summarize(c),
                 .target_side = SideOf(c, true),
                 .golden_side = SideOf(c, false),
                 .began = c.run_start,
                 .exact = c.exact,
                 .first = c.first,
                 .first_bits = DescribeFirstBits(c),
                 .equal = EqualWord(c),
                 .not_observed = c.not_observed};
  const std::vector<Region> regions = RegionsOf(c);
  found.rewrites = DescribeRewrites(c, regions);
  found.wrong_region = DescribeWrongRegion(c, regions);
  found.not_judged = WhyNothingWasJudged(c);
  if (c.first.pair >= 0) {
    found.first_name = EntryName(c, c.first.pair);
  } else {
    found.other_arguments = DescribeDifferingArguments(c);
    found.unmatched_calls = DescribeUnmatchedCalls(c);
    found.two_frameworks = OfTwoFrameworks(c.target, c.golden);
    if (const int32_t p = found.summary.first_compared_nowhere; p >= 0)
      found.compared_nowhere = EntryName(c, p);
  }
  AddLargestNoise(c, &found);
  AddCallsThatDiffer(c, &found);
  return found;
}

std::vector<LabelledText> ConditionsOf(const Findings& found) {
  std::vector<LabelledText> conditions;
  const auto add = [&](Message label, Message text) {
    if (!text.empty()) conditions.push_back({std::move(label), std::move(text)});
  };
  const RunStart& began = found.began;
  add("note"_t, began.mistake);
  const Message from = Message::Joined({began.weights, began.data}, " and ");
  if (!from.empty()) add("began"_t, "from {}"_t(from));
  add("run"_t, began.settings);
  add("exact"_t, found.exact);
  return conditions;
}

std::vector<LabelledText> CountsOf(const Findings& found) {
  const Summary& s = found.summary;
  using Count = std::pair<int64_t, Message::Format<1>>;
  const auto counts = [](std::initializer_list<Count> of) {
    std::vector<Message> parts;
    for (const auto& [count, format] : of) {
      if (count > 0) parts.push_back(format(count));
    }
    return parts.empty() ? "none"_t : Message::Joined(std::move(parts), ", ");
  };
  return {{"calls"_t, counts({{s.calls[0], "{} equal"_t},
                              {s.calls[1], "{} within rounding"_t},
                              {s.calls[2], "{} introduced"_t},
                              {s.calls[3], "{} inherited"_t},
                              {s.calls[4], "{} unknown"_t},
                              {s.aligned_calls, "{} paired under another name"_t}})},
          {"values"_t, counts({{s.rows[0], "{} equal"_t},
                               {s.rows[1], "{} within rounding"_t},
                               {s.rows[2], "{} differ"_t},
                               {s.rows[3] - s.neutral_rows, "{} unknown"_t},
                               {s.neutral_rows, "{} with nothing to compare"_t}})}};
}

}  // namespace msprobe::compare
