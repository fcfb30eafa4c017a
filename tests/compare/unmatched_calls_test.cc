#include "engine/compare/explain/unmatched_calls.h"

#include <gmock/gmock.h>

#include "engine/compare/ranks/rank_result.h"
#include "engine/compare/report/report_ranks.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::MustCompare;
using test::Numbers;
using test::Scaled;
using ::testing::HasSubstr;
using ::testing::Not;

enum class Passed { kNothing, kByName, kUnderAnotherName };

Dump Gelu(Passed passed, double error) {
  DumpBuilder b;
  b.Call("Functional.gelu.0.forward").In(Numbers(3, -3, 0.5, 9));
  if (passed == Passed::kByName) b.Value("approximate", "str", "tanh");
  if (passed == Passed::kUnderAnotherName) b.Value("1", "str", "tanh");
  b.Out(Scaled(Numbers(3, -0.2, 0.9, 7), error));
  return b.Take();
}

TEST(UnmatchedCalls, AnArgumentThatOnlyOneSidePasses) {
  const Comparison c = MustCompare(Gelu(Passed::kByName, 0.01), Gelu(Passed::kNothing, 0));
  EXPECT_EQ(c.first.call_class, CallClass::kIntroduced);
  EXPECT_THAT(c.first.why.English(),
              HasSubstr("differently: approximate is \"tanh\" in the target, and not given in the "
                        "golden"));
  const Comparison swapped = MustCompare(Gelu(Passed::kNothing, 0.01), Gelu(Passed::kByName, 0));
  EXPECT_THAT(swapped.first.why.English(), HasSubstr("in the golden, and not given in the target"));
}

TEST(UnmatchedCalls, TheSameArgumentInAnotherPlaceIsNone) {
  const Comparison c = MustCompare(Gelu(Passed::kByName, 0.01), Gelu(Passed::kUnderAnotherName, 0));
  EXPECT_EQ(UnmatchedArgument(c, 0), -1);
  EXPECT_THAT(c.first.why.English(), Not(HasSubstr("made differently")));
}

// With or without a call that clips gradients; all other values are equal.
Dump ClippedStep(bool clips) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Numbers(1, -1, 0, 3)).Out(Numbers(2, -2, 0, 5));
  if (clips) {
    b.Call("Torch.clamp.0.forward").In(Numbers(9, 9, 9, 9)).Out(Numbers(1, 1, 1, 1));
    b.At("train.py", 72, "clip_grad_norm_(net.parameters(), 1.0)", "<module>");
  }
  b.Call("Functional.relu.0.forward").In(Numbers(2, -2, 0, 5)).Out(Numbers(2, 0, 1, 4));
  return b.Take();
}

// A normalisation with a momentum that affects only its running statistics, and so the next step.
Dump Normalise(const char* momentum, double running, const char* api = "Custom.norm") {
  DumpBuilder b;
  b.Call(std::string(api) + ".0.forward").In(Numbers(1, -1, 0, 3));
  b.In(Scaled(Numbers(5, 4, 4.5, 9), running)).Value("momentum", "float", momentum);
  b.Out(Scaled(Numbers(2, -2, 0, 5), running));
  b.At("net.py", 24, "y = self.norm(x)");
  return b.Take();
}

TEST(UnmatchedCalls, AnArgumentWithoutEffectOnTheStepIsSaid) {
  const Comparison c = MustCompare(Normalise("0.2", 0), Normalise("0.1", 0));
  EXPECT_EQ(c.first.pair, -1);
  EXPECT_EQ(DescribeDifferingArguments(c),
            "Custom.norm.0.forward (net.py:24 in forward: y = self.norm(x)) was made "
            "differently: momentum is \"0.2\" in the target, \"0.1\" in the golden");
  const std::vector<RankResult> steps = {
      SummarizeRank(c, 0, -1),
      SummarizeRank(MustCompare(Normalise("0.2", 0.1), Normalise("0.1", 0)), 1, -1)};
  const std::string report = RanksReport(steps, {.target = "t", .golden = "g"}, {.width = 100});
  EXPECT_THAT(report, HasSubstr("FIRST DIVERGENCE  step 1"));
  EXPECT_THAT(report,
              HasSubstr("step 0, all results agree, but the two runs did not make the same"));
}

TEST(UnmatchedCalls, CallsAfterTheKillOfARunAreNotCounted) {
  Dump killed = ClippedStep(false);
  killed.complete = false;
  EXPECT_EQ(DescribeUnmatchedCalls(MustCompare(std::move(killed), ClippedStep(true))), "");
}

}  // namespace
}  // namespace msprobe::compare
