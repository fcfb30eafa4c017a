// Entries of optimizers: what they introduce, what they pass on, and what happens between steps.
#include "engine/compare/explain/optimizer_steps.h"

#include <gmock/gmock.h>

#include "engine/compare/explain/summary.h"
#include "engine/compare/model/optimizer_groups.h"
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
  bool one_more = false;  // one more call, on the golden's machine
};

Dump OptimizerStep(const OneRun& run) {
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
  if (run.one_more) b.Call("Torch.sin.0.forward").In(Value(1)).Out(Value(8));
  for (const auto& [key, value] : {std::pair("torch", "2.13.0"), {"device", "cpu"}})
    b.dump().provenance.emplace_back(key, value);
  return b.Take();
}

Comparison ComparedWithRight(const OneRun& target) {
  return MustCompare(OptimizerStep(target), OptimizerStep(OneRun()));
}

TEST(OptimizerSteps, AWrongStepIsIntroducedAtItsLine) {
  const Comparison c = ComparedWithRight({.after = kWrong});
  EXPECT_EQ(First(c), "Optimizer.AdamW.step.0.forward");
  EXPECT_EQ(c.first.call_class, CallClass::kIntroduced);
  EXPECT_THAT(c.first.source_line, HasSubstr("train.py:21 in <module>: optimizer.step()"));
}

TEST(OptimizerSteps, AHyperParameterIsNamed) {
  const Comparison c = ComparedWithRight({.after = kWrong, .lr = "0.001"});
  EXPECT_EQ(First(c), "Optimizer.AdamW.step.0.forward");
  EXPECT_EQ(c.first.call_class, CallClass::kIntroduced);
  EXPECT_THAT(c.first.why.English(),
              ::testing::StartsWith("lr is \"0.001\" in the target, \"0.01\" in the golden"));
  // Also when its effect is as small as rounding.
  EXPECT_EQ(First(ComparedWithRight({.after = kRounding, .lr = "0.001"})),
            "Optimizer.AdamW.step.0.forward");
  const Comparison clipped = ComparedWithRight({.max_norm = "2.0"});
  EXPECT_EQ(First(clipped), "Optimizer.clip_grad_norm_.0.forward");
  EXPECT_THAT(clipped.first.why.English(),
              ::testing::StartsWith("max_norm is \"2.0\" in the target, \"1.0\" in"));
  EXPECT_THAT(clipped.first.source_line, HasSubstr("train.py:20"));
}

// A group of parameters: their names, and how much of their weights decays.
struct Group {
  std::string decay;
  std::vector<int> weights;
};

// `wrong`: the weight whose update is another one; 0: none.
Dump Grouped(const std::vector<Group>& groups, int wrong = 0, bool counted = true) {
  DumpBuilder b;
  b.Call("Optimizer.AdamW.step.0.forward");
  for (size_t g = 0; g < groups.size(); ++g) {
    const std::string group = "param_groups." + std::to_string(g) + ".";
    b.Value(group + "weight_decay", "float", groups[g].decay);
    if (counted) b.Value(group + "params", "int", std::to_string(groups[g].weights.size()));
  }
  for (const bool after : {false, true}) {
    for (const Group& group : groups) {
      for (const int w : group.weights) {
        const std::string name = "weights.fc" + std::to_string(w);
        after ? b.OutAt("0." + name, Value(10 + w, w == wrong ? kWrong : 0))
              : b.Kwarg(name, Value(w));
      }
    }
  }
  return b.Take();
}

TEST(OptimizerSteps, GroupsInAnotherOrder) {
  const Comparison c = MustCompare(Grouped({{"0.0", {3, 4}}, {"0.1", {1, 2, 5}}}),
                                   Grouped({{"0.1", {1, 2, 5}}, {"0.0", {3, 4}}}));
  EXPECT_EQ(First(c), "none");
  EXPECT_EQ(Summarize(c).verdict, RunVerdict::kEqual) << DescribeHyperParameters(c, 0).English();
}

TEST(OptimizerSteps, AParameterInAnotherGroup) {
  const Comparison c = MustCompare(Grouped({{"0.1", {1, 2, 3, 5}}, {"0.0", {4}}}, 3),
                                   Grouped({{"0.1", {1, 2, 5}}, {"0.0", {3, 4}}}));
  EXPECT_EQ(First(c), "Optimizer.AdamW.step.0.forward");
  EXPECT_EQ(DescribeHyperParameters(c, 0),
            "weight_decay of fc3 is \"0.1\" in the target, \"0.0\" in the golden");
}

// All parameters are in one group. It is the one with its settings, although it shares less with
// that.
TEST(OptimizerSteps, AGroupThatLostItsParameters) {
  const Comparison c = MustCompare(Grouped({{"0.1", {1, 2, 3, 4, 5}}, {"0.0", {}}}, 3),
                                   Grouped({{"0.1", {1, 2}}, {"0.0", {3, 4, 5}}}));
  EXPECT_EQ(DescribeHyperParameters(c, 0),
            "weight_decay of fc3 and 2 more is \"0.1\" in the target, \"0.0\" in the golden");
}

// The settings of two groups are exchanged, not the groups.
TEST(OptimizerSteps, SettingsOfTwoGroupsExchanged) {
  const Comparison c = MustCompare(Grouped({{"0.0", {1, 2, 5}}, {"0.1", {3, 4}}}, 1),
                                   Grouped({{"0.1", {1, 2, 5}}, {"0.0", {3, 4}}}));
  EXPECT_THAT(DescribeHyperParameters(c, 0).English(),
              HasSubstr("weight_decay is \"0.0\" in the target"));
}

// An entry that does not say how many parameters a group has, or says it wrongly.
TEST(OptimizerSteps, GroupsWithoutTheirParameters) {
  const std::vector<Group> groups = {{"0.1", {1, 2, 5}}, {"0.0", {3, 4}}};
  const Dump plain = Grouped(groups, 0, false);
  EXPECT_TRUE(OptimizerGroups(plain, plain.records[0]).empty());
  Dump hostile = Grouped(groups);
  for (Leaf& leaf : hostile.leaves)
    if (leaf.name.view().ends_with("1.params")) leaf.value = "99";
  EXPECT_TRUE(OptimizerGroups(hostile, hostile.records[0]).empty());
  EXPECT_EQ(First(MustCompare(Grouped(groups, 0, false), Grouped(groups))), "none");
}

TEST(OptimizerSteps, WrongGradientsAreInherited) {
  const Comparison c = ComparedWithRight({.gradient = kWrong, .after = kWrong, .lr = "0.001"});
  EXPECT_EQ(First(c), "Module.fc.Linear.parameters_grad.0");
  for (size_t p = c.pairs.size() - 2; p < c.pairs.size(); ++p)
    EXPECT_EQ(c.classes[p], CallClass::kInherited) << p;
}

TEST(OptimizerSteps, AStateIsInherited) {
  EXPECT_EQ(ComparedWithRight({.state = kWrong, .after = kWrong}).classes.back(),
            CallClass::kInherited);
  const Comparison c = ComparedWithRight({.after = kWrong, .steps_so_far = "0"});
  EXPECT_EQ(c.classes.back(), CallClass::kInherited) << "a plain number of the state";
  EXPECT_EQ(DescribeHyperParameters(c, static_cast<int32_t>(c.pairs.size()) - 1), "");
}

TEST(OptimizerSteps, RoundingThatAStepEnlargesIsNoise) {
  const Comparison c = ComparedWithRight({.gradient = 5e-7, .after = 2e-5});
  EXPECT_EQ(First(c), "none");
  EXPECT_EQ(Summarize(c).verdict, RunVerdict::kNoise);
}

TEST(OptimizerSteps, OtherSettingsAreSaidWhereNoiseMovesAsMuch) {
  const Comparison c =
      ComparedWithRight({.gradient = 5e-7, .after = 2e-5, .lr = "0.0101", .one_more = true});
  EXPECT_EQ(First(c), "Optimizer.AdamW.step.0.forward");
  EXPECT_THAT(c.first.why.English(),
              HasSubstr("lr is \"0.0101\" in the target, \"0.01\" in the golden"));
}

TEST(OptimizerSteps, InputsOfAStepAreNoDataFromOutside) {
  const struct OneRun run;
  Dump dump = OptimizerStep(run), other = OptimizerStep({.after = kWrong});
  for (Dump* d : {&dump, &other}) {
    for (Leaf& leaf : d->leaves)
      leaf.fingerprint = d->arena.emplace_back(
          std::to_string(1000000000000000 + static_cast<int64_t>(leaf.norm_value * 1e6)));
  }
  const Comparison c = MustCompare(std::move(other), std::move(dump));
  EXPECT_THAT(c.run_start.data.English(), HasSubstr("the same data ("));
  EXPECT_THAT(c.run_start.data.English(), Not(HasSubstr("5 tensors")));
}

std::string Report(const OneRun& first_target, const OneRun& first_golden,
                   const OneRun& second_target) {
  const std::vector<RankResult> steps = {
      SummarizeRank(MustCompare(OptimizerStep(first_target), OptimizerStep(first_golden)), 3, -1),
      SummarizeRank(ComparedWithRight(second_target), 4, -1)};
  return DescribeStepBefore(steps, steps[1]).English();
}

// A step that begins with another weight: what is made of it differs, too.
const OneRun kOtherWeight{.weight = kWrong, .gradient = kWrong, .after = kWrong};

TEST(BetweenSteps, OtherWeightsAfterAnEqualStep) {
  const OneRun blind{.records_optimizer = false};
  const std::string text = Report(blind, blind, kOtherWeight);
  EXPECT_THAT(text, HasSubstr("step 3 agrees, gradients included, and step 4 begins with other"));
  EXPECT_THAT(text, HasSubstr("gradient clipping, the optimizer, its schedule, loading of weights "
                              "or synchronisation, none of which is recorded"));
  EXPECT_THAT(text, HasSubstr("1 of 2 parameters differ, first fc.weight (its norm moves from 9 to "
                              "9.45 in the target, stays 9 in the golden)"));
}

TEST(BetweenSteps, GraphModeHasNoLevelMix) {
  const OneRun blind{.records_optimizer = false};
  const auto text = [&](const char* mode) {
    Dump target = OptimizerStep(blind);
    target.provenance.emplace_back("mode", mode);
    const std::vector<RankResult> steps = {
        SummarizeRank(MustCompare(std::move(target), OptimizerStep(blind)), 3, -1),
        SummarizeRank(ComparedWithRight(kOtherWeight), 4, -1)};
    return DescribeStepBefore(steps, steps[1]).English();
  };
  EXPECT_THAT(text("pynative"), HasSubstr("in that step; level mix records optimizers"));
  EXPECT_THAT(text("graph"), HasSubstr("in that step; in PyNative mode level mix records"));
}

TEST(BetweenSteps, RecordedOptimizersAreNamed) {
  const std::string text = Report({}, {}, kOtherWeight);
  EXPECT_THAT(text, HasSubstr("loading of weights, synchronisation or other code after the "
                              "optimizer: Optimizer.clip_grad_norm_.0.forward, "
                              "Optimizer.AdamW.step.0.forward and the weights after them agree"));
  EXPECT_THAT(text, HasSubstr("its norm moves from 14 to 9.45 in the target"));
}

TEST(BetweenSteps, NothingIsSaidOfAStepThatDiffersOrOfEqualWeights) {
  EXPECT_EQ(Report({.after = kWrong}, {}, kOtherWeight), "");
  EXPECT_EQ(Report({}, {}, {}), "");
  EXPECT_EQ(Report({}, {}, {.after = kWrong}), "") << "the step itself is wrong";
}

TEST(BetweenSteps, TheReportSaysIt) {
  const std::vector<RankResult> steps = {SummarizeRank(ComparedWithRight({}), 0, -1),
                                         SummarizeRank(ComparedWithRight(kOtherWeight), 1, -1)};
  const std::string report = RanksReport(steps, {.target = "t", .golden = "g"}, {.width = 100});
  EXPECT_THAT(report, HasSubstr("step 0 agrees, gradients included"));
}

TEST(BetweenSteps, AGradientThatOneRunListsHasNoError) {
  const auto run = [](bool bias) {
    DumpBuilder b;
    b.Call("Module.fc.Linear.parameters_grad.0").Grad("weight", Value(1, bias ? kWrong : 0));
    if (bias) b.Grad("bias", Value(2));
    return b.Take();
  };
  for (const bool target : {false, true}) {
    const RankResult step = SummarizeRank(MustCompare(run(target), run(!target)), 0, -1);
    EXPECT_GT(step.weights.gradient_noise, 0.01);
  }
}

}  // namespace
}  // namespace msprobe::compare
