// Entries of optimizers: what they introduce, what they pass on, and what happens between steps.
#include "engine/compare/explain/optimizer_steps.h"

#include <gmock/gmock.h>

#include "engine/compare/explain/summary.h"
#include "engine/compare/ranks/rank_result.h"
#include "engine/compare/report/report_ranks.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::First;
using test::kRounding;
using test::kWrong;
using test::MustCompare;
using test::Value;
using ::testing::HasSubstr;
using ::testing::Not;

// How one run differs from the other: relative errors, and hyper-parameters.
struct OneRun {
  double weight = 0, gradient = 0, state = 0, after = 0;
  std::string lr = "0.01", max_norm = "1.0", steps_so_far = "3";
  bool clips = true, records_optimizer = true, has_backward = true;
};

Dump Step(const OneRun& run) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Value(1)).In(Value(2, run.weight));
  b.Out(Value(3, run.weight)).Parent("Module.fc.Linear.forward.0");
  b.Call("Module.fc.Linear.forward.0").In(Value(1)).Out(Value(3, run.weight));
  b.Parameter("weight", Value(2, run.weight)).Parameter("bias", Value(9));
  if (run.has_backward) {
    b.Call("Module.fc.Linear.parameters_grad.0").Grad("weight", Value(4, run.gradient));
  }
  if (!run.records_optimizer) return b.Take();
  if (run.clips) {
    b.Call("Optimizer.clip_grad_norm_.0.forward").Value("max_norm", "float", run.max_norm);
    b.Kwarg("gradients.fc.weight", Value(4, run.gradient));
    b.Out(Value(5, run.max_norm == "1.0" ? run.gradient : 0.5));
    b.At("train.py", 20, "clip_grad_norm_(net.parameters(), 1.0)", "<module>");
  }
  b.Call("Optimizer.AdamW.step.0.forward").Value("param_groups.0.lr", "float", run.lr);
  b.Value("param_groups.1.eps", "float", "1e-08");
  b.Kwarg("gradients.fc.weight", Value(5, run.gradient));
  b.Kwarg("weights.fc.weight", Value(2, run.weight));
  b.Value("state.fc.weight.step", "int", run.steps_so_far);
  b.Kwarg("state.fc.weight.exp_avg", Value(6, run.state));
  b.OutAt("0.weights.fc.weight", Value(7, run.after))
      .At("train.py", 21, "optimizer.step()", "<module>");
  return b.Take();
}

Comparison Compared(const OneRun& target) { return MustCompare(Step(target), Step(OneRun())); }

TEST(OptimizerSteps, AWrongStepIsIntroducedAtItsLine) {
  const Comparison c = Compared({.after = kWrong});
  EXPECT_EQ(First(c), "Optimizer.AdamW.step.0.forward");
  EXPECT_EQ(c.first.call_class, CallClass::kIntroduced);
  EXPECT_THAT(c.first.source_line, HasSubstr("train.py:21 in <module>: optimizer.step()"));
}

TEST(OptimizerSteps, AHyperParameterIsNamed) {
  const Comparison c = Compared({.after = kWrong, .lr = "0.001"});
  EXPECT_EQ(First(c), "Optimizer.AdamW.step.0.forward");
  EXPECT_EQ(c.first.call_class, CallClass::kIntroduced);
  EXPECT_THAT(c.first.why,
              ::testing::StartsWith("lr is \"0.001\" in the target, \"0.01\" in the golden"));
  // Also when its effect is as small as rounding.
  EXPECT_EQ(First(Compared({.after = kRounding, .lr = "0.001"})), "Optimizer.AdamW.step.0.forward");
  const Comparison clipped = Compared({.max_norm = "2.0"});
  EXPECT_EQ(First(clipped), "Optimizer.clip_grad_norm_.0.forward");
  EXPECT_THAT(clipped.first.why,
              ::testing::StartsWith("max_norm is \"2.0\" in the target, \"1.0\" in"));
  EXPECT_THAT(clipped.first.source_line, HasSubstr("train.py:20"));
}

TEST(OptimizerSteps, WrongGradientsAreInherited) {
  const Comparison c = Compared({.gradient = kWrong, .after = kWrong, .lr = "0.001"});
  EXPECT_EQ(First(c), "Module.fc.Linear.parameters_grad.0");
  for (size_t p = c.pairs.size() - 2; p < c.pairs.size(); ++p)
    EXPECT_EQ(c.classes[p], CallClass::kInherited) << p;
}

TEST(OptimizerSteps, AStateIsInherited) {
  EXPECT_EQ(Compared({.state = kWrong, .after = kWrong}).classes.back(), CallClass::kInherited);
  const Comparison c = Compared({.after = kWrong, .steps_so_far = "0"});
  EXPECT_EQ(c.classes.back(), CallClass::kInherited) << "a plain number of the state";
  EXPECT_EQ(DescribeHyperParameters(c, static_cast<int32_t>(c.pairs.size()) - 1), "");
}

TEST(OptimizerSteps, RoundingThatAStepEnlargesIsNoise) {
  const Comparison c = Compared({.gradient = 5e-7, .after = 2e-5});
  EXPECT_EQ(First(c), "none");
  EXPECT_EQ(Summarize(c).verdict, RunVerdict::kNoise);
}

TEST(OptimizerSteps, InputsOfAStepAreNoDataFromOutside) {
  const struct OneRun run;
  Dump dump = Step(run), other = Step({.after = kWrong});
  for (Dump* d : {&dump, &other}) {
    for (Leaf& leaf : d->leaves)
      leaf.fingerprint = d->arena.emplace_back(
          std::to_string(1000000000000000 + static_cast<int64_t>(leaf.norm_value * 1e6)));
  }
  const Comparison c = MustCompare(std::move(other), std::move(dump));
  EXPECT_THAT(c.run_start.data, HasSubstr("the same data ("));
  EXPECT_THAT(c.run_start.data, Not(HasSubstr("5 tensors")));
}

std::string Report(const OneRun& first_target, const OneRun& first_golden,
                   const OneRun& second_target) {
  const std::vector<RankResult> steps = {
      SummarizeRank(MustCompare(Step(first_target), Step(first_golden)), 3, -1),
      SummarizeRank(Compared(second_target), 4, -1)};
  return DescribeStepBefore(steps, steps[1]);
}

TEST(BetweenSteps, OtherWeightsBehindAnEqualStep) {
  const OneRun blind{.records_optimizer = false};
  const std::string text = Report(blind, blind, {.weight = kWrong});
  EXPECT_THAT(text, HasSubstr("step 3 agrees, gradients included, and step 4 begins with other"));
  EXPECT_THAT(text, HasSubstr("gradient clipping, the optimizer, its schedule, loading of weights "
                              "or synchronisation, none of which is recorded"));
  EXPECT_THAT(text, HasSubstr("1 of 2 parameters differ, first fc.weight (its norm moves from 9 to "
                              "9.45 in the target, stays 9 in the golden)"));
}

TEST(BetweenSteps, RecordedOptimizersAreNamed) {
  const std::string text = Report({}, {}, {.weight = kWrong});
  EXPECT_THAT(text, HasSubstr("loading of weights, synchronisation or other code behind the "
                              "optimizer: Optimizer.clip_grad_norm_.0.forward, "
                              "Optimizer.AdamW.step.0.forward and the weights behind them agree"));
  EXPECT_THAT(text, HasSubstr("its norm moves from 14 to 9.45 in the target"));
}

TEST(BetweenSteps, NothingIsSaidOfAStepThatDiffersOrOfEqualWeights) {
  EXPECT_EQ(Report({.after = kWrong}, {}, {.weight = kWrong}), "");
  EXPECT_EQ(Report({}, {}, {}), "");
  EXPECT_EQ(Report({}, {}, {.after = kWrong}), "") << "the step itself is wrong";
}

TEST(BetweenSteps, TheReportSaysIt) {
  const std::vector<RankResult> steps = {SummarizeRank(Compared({}), 0, -1),
                                         SummarizeRank(Compared({.weight = kWrong}), 1, -1)};
  const std::string report = RanksReport(steps, {.target = "t", .golden = "g"}, {.width = 100});
  EXPECT_THAT(report, HasSubstr("step 0 agrees, gradients included"));
}

}  // namespace
}  // namespace msprobe::compare
