// The reports on many ranks and steps say as much of the pair that matters as the report on one
// pair.
#include <gmock/gmock.h>

#include "engine/base/messages/message.h"
#include "engine/compare/ranks/rank_findings.h"
#include "engine/compare/report/report_ci.h"
#include "engine/compare/report/report_ranks.h"
#include "engine/compare/report/report_terminal.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::MustCompare;
using test::Numbers;
using test::Scaled;
using ::testing::HasSubstr;
using ::testing::Not;

// One step of a program; with `error` the relu is wrong, and what follows it.
Dump OneStep(double error, const char* torch, bool extra) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Numbers(1, -1, 0, 3)).Out(Numbers(2, -2, 0, 5));
  if (extra) b.Call("Tensor.clone.0.forward").In(Numbers(4, 0, 1, 8)).Out(Numbers(4, 0, 1, 8));
  b.Call("Functional.relu.0.forward")
      .In(Numbers(2, -2, 0, 5))
      .Out(Scaled(Numbers(2, 0, 1, 4), error));
  b.At("net.py", 24, "y = relu(x)");
  b.Call("Functional.softmax.0.forward")
      .In(Scaled(Numbers(2, 0, 1, 4), error))
      .Out(Scaled(Numbers(1, 0, 0.5, 2), error));
  b.dump().provenance = {{"torch", torch}};
  return b.Take();
}

Comparison ComparedStep(double error, bool extra = false) {
  return MustCompare(OneStep(error, "2.2", extra), OneStep(0, "2.1", false));
}

constexpr TerminalOptions kFile = {.width = 100, .whole = true};

TEST(RanksReportTest, KeepsEachLineOfTheReportOnTheStepThatMatters) {
  const Comparison wrong = ComparedStep(0.1, true);
  const std::vector<RankResult> steps = {SummarizeRank(ComparedStep(0), 0, -1),
                                         SummarizeRank(wrong, 1, -1),
                                         SummarizeRank(ComparedStep(0.3), 2, -1)};
  const std::string one = TerminalReport(wrong, kFile);
  const std::string all = RanksReport(steps, {.target = "t", .golden = "g"}, kFile);
  size_t kept = 0;
  for (std::string_view line : Split(one, '\n')) {
    const bool own = line.starts_with("msprobe compare") || line.starts_with("  target") ||
                     line.starts_with("  golden") || line.starts_with("FIRST DIVERGENCE");
    if (own) continue;
    EXPECT_THAT(all, HasSubstr(std::string(line))) << all;
    ++kept;
  }
  EXPECT_GT(kept, 9u) << one;
  for (const char* word : {"  run ", "also differs", "calls  ", "values  ", "only in the target"})
    EXPECT_THAT(one, HasSubstr(word));
  EXPECT_THAT(all, HasSubstr("of step 1: target 4 calls, 8 values; golden 3 calls, 6 values"));
  EXPECT_THAT(all, HasSubstr("  step 0: equal\n"));
  EXPECT_THAT(all, HasSubstr("  step 1: differs\n"));
  EXPECT_THAT(all, HasSubstr("  step 2: differs, inherited from step 1\n"));
}

TEST(RanksReportTest, TheWeightsOfTheFirstDumpAreThoseOfTheRun) {
  RankResult first = SummarizeRank(ComparedStep(0), 0, 0),
             other = SummarizeRank(ComparedStep(0), 0, 1),
             second = SummarizeRank(ComparedStep(0.1), 1, 1);
  first.began.weights = "other weights (1 of 2 differ, first a)"_t;
  other.began.weights = "the same weights (2)"_t;
  const std::vector<RankResult> results = {first, other, second};
  EXPECT_EQ(FindingsOfRanks(results, &results[2]).began.weights, "the same weights (2)");
  EXPECT_THAT(RanksReport(results, {}, kFile), HasSubstr("began   from the same weights (2)"));
}

TEST(RanksReportTest, WithoutAWrongNumberThePairsAreAddedUp) {
  const std::vector<RankResult> steps = {SummarizeRank(ComparedStep(0), 0, -1),
                                         SummarizeRank(ComparedStep(0), 1, -1)};
  const std::string text = RanksReport(steps, {}, kFile);
  EXPECT_THAT(text, HasSubstr("No divergence: all 12 values recorded on both sides are equal"));
  EXPECT_THAT(text, HasSubstr("of all pairs of dumps: target 6 calls, 12 values"));
  EXPECT_THAT(text, HasSubstr("calls    6 equal"));
}

// "0 calls of one run are inside compiled code of the other" was said of them.
TEST(RanksReportTest, ValuesOfAnotherFormAreAddedUp) {
  std::vector<RankResult> steps = {SummarizeRank(ComparedStep(0), 0, -1),
                                   SummarizeRank(ComparedStep(0), 1, -1)};
  for (RankResult& step : steps) {
    step.summary.verdict = RunVerdict::kStructure;
    step.summary.other_forms = 2;
  }
  EXPECT_THAT(RanksReport(steps, {.target = "t", .golden = "g"}, kFile),
              HasSubstr("4 values of paired calls have\nanother form"));
}

TEST(RanksReportTest, WhatCouldNotBeReadHasNoNumbers) {
  RankResult failed;
  failed.failed = InvalidArgument("no file"_t);
  const std::vector<RankResult> results = {failed};
  EXPECT_THAT(RanksReport(results, {}, kFile), Not(HasSubstr("calls")));
}

TEST(RanksReportTest, ASmallScreenKeepsTheFindingAndTheCounts) {
  const std::vector<RankResult> steps = {SummarizeRank(ComparedStep(0), 0, -1),
                                         SummarizeRank(ComparedStep(0.1, true), 1, -1)};
  const std::string text = RanksReport(steps, {}, {.width = 80, .lines = 10});
  for (const char* word : {"FIRST DIVERGENCE", "net.py:24", "calls  ", "values  "})
    EXPECT_THAT(text, HasSubstr(word));
  EXPECT_THAT(text, Not(HasSubstr("also differs")));
}

TEST(RanksReportTest, ReportsForCiHaveConditionsAndCounts) {
  const std::vector<RankResult> steps = {SummarizeRank(ComparedStep(0), 0, -1),
                                         SummarizeRank(ComparedStep(0.1), 1, -1)};
  const std::string markdown = MarkdownReport(steps, {}), junit = JUnitReport(steps);
  for (const char* fact : {"- run: torch 2.2 in the target, 2.1 in the golden\n",
                           "- calls: 1 equal, 1 introduced, 1 inherited\n", "- values: "})
    EXPECT_THAT(markdown, HasSubstr(fact));
  EXPECT_THAT(junit, HasSubstr("<property name=\"calls\" value=\"3 equal\"/>"));
  EXPECT_THAT(junit, HasSubstr("<property name=\"run\" value=\"torch 2.2 in the target"));
}

}  // namespace
}  // namespace msprobe::compare
