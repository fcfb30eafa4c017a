// Gradients that lay in .grad when a backward pass began: which call is named, and which is not.
#include "engine/compare/relations/left_gradients.h"

#include <gmock/gmock.h>

#include <optional>
#include <string>

#include "engine/compare/explain/summary.h"
#include "engine/compare/report/report_terminal.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::First;
using test::kWrong;
using test::MustCompare;
using test::Tensor;
using test::Value;
using ::testing::HasSubstr;

constexpr std::string_view kEntry = "Optimizer.gradients_before.0.forward";

// A step of one run, and how it differs from the right one: relative errors.
struct LeftRun {
  std::optional<Tensor> before;     // lay in .grad of fc.weight when the backward pass began
  std::optional<Tensor> of_unused;  // of a parameter that the step has no gradient of
  bool tells = true;                // false: a dump of an older version
  bool modules = true;              // false: level L1
  bool cleared = false;             // zero_grad and another backward pass before the optimizer
  double backward = 0, gradient = 0, update = 0;
  std::string parameter = "fc.weight", lr = "0.1";
};

Dump StepOfLeft(const LeftRun& run) {
  DumpBuilder b;
  if (run.tells) b.dump().provenance.emplace_back("gradients_before", "true");
  b.Call("Functional.linear.0.forward").In(Value(1)).In(Value(2)).Out(Value(3));
  if (run.modules) {
    b.Parent("Module.fc.Linear.forward.0");
    b.Call("Module.fc.Linear.forward.0").In(Value(1)).Out(Value(3)).Parameter("weight", Value(2));
  }
  if (run.before || run.of_unused) {
    b.Call(kEntry).At("train.py", 9, "loss.backward()", "<module>");
    if (run.of_unused) b.OutAt("0.unused.weight", *run.of_unused);
    if (run.before) b.OutAt("0." + run.parameter, *run.before);
  }
  b.Call("Functional.linear.0.backward").In(Value(4)).Out(Value(5, run.backward));
  if (run.modules) {
    b.Parent("Module.fc.Linear.backward.0");
    b.Call("Module.fc.Linear.backward.0").In(Value(4)).Out(Value(5, run.backward));
    b.Call("Module.fc.Linear.parameters_grad.0").Grad("weight", Value(6, run.gradient));
  }
  const double gradient = run.cleared ? 0 : run.gradient;
  b.Call("Optimizer.SGD.step.0.forward").Value("param_groups.0.lr", "float", run.lr);
  b.Kwarg("gradients.fc.weight", Value(6, gradient)).Kwarg("weights.fc.weight", Value(2));
  b.OutAt("0.weights.fc.weight", Value(7, gradient + run.update));
  b.At("train.py", 10, "optimizer.step()", "<module>");
  return b.Take();
}

LeftRun Forgotten() { return {.before = Value(8), .gradient = kWrong}; }

TEST(LeftGradients, AForgottenZeroGradIsNamedAtTheBackwardPass) {
  for (const bool modules : {true, false}) {
    LeftRun wrong = Forgotten();
    wrong.modules = modules;
    const Comparison c = MustCompare(StepOfLeft(wrong), StepOfLeft({.modules = modules}));
    EXPECT_EQ(First(c), kEntry);
    EXPECT_EQ(c.first.source_line, "train.py:9 in <module>: loss.backward()");
    EXPECT_THAT(c.first.why.English(),
                HasSubstr("`fc.weight` had a gradient before this backward pass in the "
                          "target, none in the golden: zero_grad was not called, or "
                          "called elsewhere"));
    // The backward calls of the pass are not before it.
    EXPECT_THAT(c.first.why.English(),
                HasSubstr(modules ? "2 calls before it are " : "1 call before it is "));
    EXPECT_EQ(c.first.module, "");
    EXPECT_GT(c.first.confidence, 0.9);
    // Nothing else is blamed.
    for (size_t p = 0; p < c.pairs.size(); ++p) {
      if (c.classes[p] == CallClass::kIntroduced) {
        EXPECT_EQ(EntryName(c, static_cast<int32_t>(p)), kEntry);
      }
    }
    EXPECT_TRUE(c.runners_up.empty());
    EXPECT_EQ(Summarize(c).verdict, RunVerdict::kDiffers);
  }
}

TEST(LeftGradients, SwappedSidesHaveTheMirroredAnswer) {
  const Comparison c = MustCompare(StepOfLeft({}), StepOfLeft(Forgotten()));
  EXPECT_EQ(First(c), kEntry);
  EXPECT_EQ(c.first.source_line, "train.py:9 in <module>: loss.backward()");
  EXPECT_THAT(c.first.why.English(), HasSubstr("pass in the golden, none in the target"));
}

TEST(LeftGradients, AnotherContentIsNamedWithItsSize) {
  const Comparison c = MustCompare(StepOfLeft({.before = Value(8, kWrong), .gradient = kWrong}),
                                   StepOfLeft({.before = Value(8)}));
  EXPECT_EQ(First(c), kEntry);
  EXPECT_THAT(c.first.why.English(),
              HasSubstr("`fc.weight` had another gradient before this backward pass in "
                        "the target than in the golden"));
  EXPECT_THAT(c.first.why.English(), HasSubstr("fc.weight is off by"));
}

TEST(LeftGradients, TheSameOnBothSidesIsNoFinding) {
  const LeftRun accumulates{.before = Value(8)};
  EXPECT_EQ(Summarize(MustCompare(StepOfLeft(accumulates), StepOfLeft(accumulates))).verdict,
            RunVerdict::kEqual);
  LeftRun other = accumulates;
  other.gradient = kWrong;
  EXPECT_EQ(First(MustCompare(StepOfLeft(other), StepOfLeft(accumulates))),
            "Module.fc.Linear.parameters_grad.0");
}

TEST(LeftGradients, ZerosAreNothing) {
  const LeftRun zeros{.before = test::Numbers(0, 0, 0, 0)};
  EXPECT_EQ(Summarize(MustCompare(StepOfLeft(zeros), StepOfLeft({}))).verdict, RunVerdict::kEqual);
  LeftRun wrong = zeros;
  wrong.gradient = kWrong;
  EXPECT_EQ(First(MustCompare(StepOfLeft(wrong), StepOfLeft({}))),
            "Module.fc.Linear.parameters_grad.0");
}

TEST(LeftGradients, WhatNoCallShowsChangesNothing) {
  const LeftRun unused{.of_unused = Value(8)};
  const Comparison calm = MustCompare(StepOfLeft(unused), StepOfLeft({}));
  EXPECT_EQ(Summarize(calm).verdict, RunVerdict::kEqual);
  EXPECT_EQ(calm.pairs.size(), MustCompare(StepOfLeft({}), StepOfLeft({})).pairs.size());
  LeftRun wrong = unused;
  wrong.gradient = kWrong, wrong.of_unused->Shape("[7]");
  EXPECT_EQ(First(MustCompare(StepOfLeft(wrong), StepOfLeft({}))),
            "Module.fc.Linear.parameters_grad.0");
}

TEST(LeftGradients, WhatIsClearedBeforeTheOptimizerIsNoFinding) {
  LeftRun run = Forgotten();
  run.cleared = true;
  const LeftRun golden{.cleared = true};
  const Comparison c = MustCompare(StepOfLeft(run), StepOfLeft(golden));
  EXPECT_EQ(First(c), "none");
  EXPECT_EQ(Summarize(c).verdict, RunVerdict::kStructure);
  EXPECT_THAT(TerminalReport(c), HasSubstr("differ without effect on it"));
}

TEST(LeftGradients, AnotherLearningRateIsNamedItself) {
  const LeftRun accumulates{.before = Value(8), .modules = false};
  LeftRun other = accumulates;
  other.lr = "0.2", other.update = kWrong;
  EXPECT_EQ(First(MustCompare(StepOfLeft(other), StepOfLeft(accumulates))),
            "Optimizer.SGD.step.0.forward");
}

TEST(LeftGradients, ADumpThatDoesNotTellIsJudgedAsBefore) {
  const Comparison c = MustCompare(StepOfLeft(Forgotten()), StepOfLeft({.tells = false}));
  EXPECT_EQ(First(c), "Module.fc.Linear.parameters_grad.0");
  EXPECT_EQ(c.pairs.size(), MustCompare(StepOfLeft({}), StepOfLeft({})).pairs.size());
  // Nor does the key alone change the environment of the run.
  EXPECT_EQ(MustCompare(StepOfLeft({}), StepOfLeft({.tells = false})).run_start.settings, "");
}

TEST(LeftGradients, ASharedParameterIsKnownByItsShape) {
  LeftRun wrong = Forgotten();
  wrong.parameter = "embedding.weight";
  const Comparison c = MustCompare(StepOfLeft(wrong), StepOfLeft({}));
  EXPECT_EQ(First(c), kEntry);
  EXPECT_LT(c.first.confidence, 0.9);
}

TEST(LeftGradients, TheRestOfTheDumpStaysWhole) {
  Dump with = StepOfLeft(Forgotten()), without = StepOfLeft({.gradient = kWrong});
  DropGradientsBefore(&with);
  ASSERT_EQ(with.records.size(), without.records.size());
  ASSERT_EQ(with.leaves.size(), without.leaves.size());
  for (size_t i = 0; i < with.leaves.size(); ++i) {
    EXPECT_EQ(with.leaves[i].name, without.leaves[i].name);
    EXPECT_EQ(with.leaves[i].record, without.leaves[i].record);
  }
  for (size_t i = 0; i < with.records.size(); ++i)
    EXPECT_EQ(with.records[i].first_leaf, without.records[i].first_leaf);
}

}  // namespace
}  // namespace msprobe::compare
