// Sentences of a report that must never be false.
#include <gmock/gmock.h>

#include <set>

#include "engine/compare/explain/explanation.h"
#include "engine/compare/explain/findings.h"
#include "engine/compare/ranks/rank_result.h"
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
using test::Tensor;
using ::testing::HasSubstr;
using ::testing::Not;

// A module whose inner call is wrong, behind another wrong call outside it.
Dump TwoBeginnings(double error) {
  DumpBuilder b;
  b.Call("Functional.a.0.forward")
      .In(Numbers(1, -1, 0, 3))
      .Out(Scaled(Numbers(2, -2, 0, 5), error));
  b.Call("Functional.b.0.forward")
      .Parent("Module.net.Net.forward.0")
      .In(Scaled(Numbers(2, -2, 0, 5), error))
      .Out(Scaled(Numbers(4, -2, 0, 6), error));
  b.Call("Module.net.Net.forward.0")
      .In(Numbers(7, -1, 0, 3))
      .Out(Scaled(Numbers(4, -2, 0, 6), error));
  return b.Take();
}

TEST(TrueSentences, ACallInsideAModuleThatShowsTheErrorIsNamed) {
  const Comparison c = MustCompare(TwoBeginnings(0.1), TwoBeginnings(0));
  ASSERT_EQ(c.runners_up.size(), 1u);
  EXPECT_THAT(c.runners_up[0].advice, Not(HasSubstr("none of the")));
  EXPECT_THAT(c.runners_up[0].advice, HasSubstr("Functional.b.0.forward is the first call in it"));
}

// A call inside a module reads a buffer that no call made; both runs say which one it is.
Dump WithBuffer(const char* print, double error, bool module) {
  DumpBuilder b;
  Tensor buffer = Scaled(Numbers(3, 1, 2, 6), error);
  b.Call("Functional.a.0.forward").In(Numbers(1, -1, 0, 3)).Out(Numbers(2, -2, 0, 5));
  b.Call("Torch.outer.0.forward").In(buffer.Print(print)).Out(Scaled(Numbers(4, 1, 2, 9), error));
  b.last().requires_grad = "False";
  b.dump().leaves[2].requires_grad = "False";
  if (module) {
    b.Parent("Module.layers.0.Rope.forward.0");
    b.Call("Module.layers.0.Rope.forward.0")
        .In(Numbers(1, -1, 0, 3))
        .Out(Scaled(Numbers(4, 1, 2, 9), error));
  }
  b.dump().weights = {{.name = "layers.0.inv_freq", .fingerprint = print}};
  return b.Take();
}

TEST(TrueSentences, ABufferOfTheWeightsFileIsNamed) {
  for (const bool module : {true, false}) {
    const Comparison c = MustCompare(WithBuffer("aa", 0.1, module), WithBuffer("bb", 0, module));
    EXPECT_THAT(c.first.why, HasSubstr("buffer layers.0.inv_freq differs already in the weights"));
    EXPECT_THAT(c.first.why, Not(HasSubstr("no recorded operation made")));
    EXPECT_THAT(c.first.why, Not(HasSubstr("still right")));
    EXPECT_THAT(c.first.advice, HasSubstr("checkpoints"));
  }
}

TEST(TrueSentences, AValueMadeOfABufferIsNotSaidToBeRightBefore) {
  // The call reads a copy of the buffer: other bits than those of the weights file.
  const auto copy = [](const char* weight, const char* print, double error) {
    Dump dump = WithBuffer(print, error, true);
    dump.weights = {{.name = "module.layers.0.inv_freq", .fingerprint = weight}};
    return dump;
  };
  const Comparison c = MustCompare(copy("w", "aa", 0.1), copy("v", "bb", 0));
  EXPECT_THAT(c.first.why, HasSubstr("layers.0.inv_freq differs already in the weights file"));
  EXPECT_THAT(c.first.why, Not(HasSubstr("still right")));
}

TEST(TrueSentences, AModuleOfWhichABufferDiffersDoesNotBlameItsCode) {
  const auto build = [](const char* weight, double error) {
    DumpBuilder b;
    b.Call("Module.layers.0.Rope.forward.0")
        .In(Numbers(1, -1, 0, 3))
        .Out(Scaled(Numbers(4, 1, 2, 9), error));
    b.dump().weights = {{.name = "layers.0.inv_freq", .fingerprint = weight}};
    return b.Take();
  };
  const Comparison c = MustCompare(build("w", 0.1), build("v", 0));
  EXPECT_THAT(c.first.why, HasSubstr("layers.0.inv_freq differs already in the weights file"));
}

TEST(TrueSentences, TheAdviceOnPrecisionFitsTheDevices) {
  const auto advice = [](const char* target, const char* golden) {
    const auto build = [](const char* device, double error) {
      DumpBuilder b;
      b.Call("Functional.linear.0.forward")
          .In(Numbers(1, -1, 0, 3).Shape("[4, 8]"))
          .In(Numbers(1, -1, 0, 3).Shape("[8, 8]"))
          .Out(Scaled(Numbers(2, -2, 0, 5).Shape("[4, 8]"), error));
      b.dump().provenance = {{"device", device}};
      return b.Take();
    };
    return MustCompare(build(target, 3e-4), build(golden, 0)).first.advice;
  };
  EXPECT_THAT(advice("cpu", "cpu"), Not(HasSubstr("TF32")));
  EXPECT_THAT(advice("cpu", "cpu"), HasSubstr("bfloat16"));
  EXPECT_THAT(advice("cuda: NVIDIA H100", "cpu"), HasSubstr("TF32"));
  EXPECT_THAT(advice("npu: Ascend910B", "cuda: NVIDIA H100"), HasSubstr("HF32"));
}

TEST(TrueSentences, TheFirstDivergenceIsNeverWithinRounding) {
  // Rounding grows; the largest jump is in a call that is still within rounding.
  const auto build = [](bool drifts) {
    DumpBuilder b;
    const double errors[] = {2e-7, 1.2e-6, 8e-6, 5e-5, 2e-4, 8e-4, 3e-3};
    for (int i = 0; i + 1 < 7; ++i) {
      b.Call("Functional.f" + std::to_string(i) + ".0.forward")
          .In(Scaled(Numbers(i + 1, -1, 0.5, 9 + i), drifts ? errors[i] : 0))
          .Out(Scaled(Numbers(i + 2, -1, 0.5, 10 + i), drifts ? errors[i + 1] : 0));
    }
    return b.Take();
  };
  const Comparison c = MustCompare(build(true), build(false));
  ASSERT_GE(c.first.pair, 0);
  EXPECT_THAT(c.first.why, HasSubstr("grow from call to call"));
  EXPECT_NE(c.first.call_class, CallClass::kNoise);
}

TEST(TrueSentences, LaterStepsInherit) {
  std::vector<RankResult> steps;
  for (int step = 0; step < 4; ++step) {
    const double error = step == 0 ? 0 : 0.1;
    steps.push_back(SummarizeRank(MustCompare(TwoBeginnings(error), TwoBeginnings(0)), step, -1));
  }
  EXPECT_EQ(FirstWrongStep(steps), 1);
  EXPECT_EQ(InheritedFrom(steps[1], 1), "");
  EXPECT_EQ(InheritedFrom(steps[2], 1), "inherited from step 1");
  const std::string text = RanksReport(steps, {}, {.whole = true}), csv = RankSummaryCsv(steps);
  EXPECT_THAT(text, HasSubstr("  step 1: differs\n"));
  EXPECT_THAT(text, HasSubstr("  steps 2, 3: differs, inherited from step 1\n"));
  EXPECT_THAT(csv, HasSubstr("introduced"));
  EXPECT_EQ(csv.find("introduced,1", csv.find("introduced,1") + 1), csv.npos) << csv;
  EXPECT_THAT(MarkdownReport(steps, {}), HasSubstr("| step 2 | differs, inherited from step 1 |"));
  EXPECT_THAT(JUnitReport(steps), HasSubstr("inherited from step 1, first seen at Functional.a.0"));
  // One step is not known to have an earlier one.
  EXPECT_EQ(FirstWrongStep(std::span(steps).subspan(2, 1)), -1);
}

// The output of a linear layer, the same tensor as the output of its module, and as the input of a
// reader. A linear layer sums many terms, which explains an error that is not explained elsewhere.
Dump Linear(double error, const char* print) {
  DumpBuilder b;
  const Tensor made = Scaled(Numbers(2, -2, 0, 50), error).Shape("[4, 8]").Print(print);
  b.Call("Functional.linear.0.forward")
      .In(Numbers(1, -1, 0, 3).Shape("[4, 4096]").Print("x"))
      .In(Numbers(1, -1, 0, 9).Shape("[8, 4096]").Print("w"))
      .Out(made);
  b.Call("Module.fc.Linear.forward.0")
      .In(Numbers(1, -1, 0, 3).Shape("[4, 4096]").Print("x"))
      .Out(made);
  b.Call("Functional.relu.0.forward").In(made).Out(Numbers(2, 0, 1, 4).Print("y"));
  return b.Take();
}

TEST(TrueSentences, OneTensorHasOneVerdict) {
  int noise = 0, differs = 0;
  for (double error = 1e-8; error < 1e-2; error *= 1.5) {
    const Comparison c = MustCompare(Linear(error, "t"), Linear(0, "g"));
    std::set<RowVerdict> verdicts;
    for (size_t i = 0; i < c.rows.size(); ++i) {
      if (c.target.leaves[c.rows[i].target].fingerprint == "t")
        verdicts.insert(c.measures[i].verdict);
    }
    ASSERT_EQ(verdicts.size(), 1u) << error;
    (*verdicts.begin() == RowVerdict::kDiffers ? differs : noise) += 1;
  }
  EXPECT_GT(noise, 0);
  EXPECT_GT(differs, 0);
}

// "its inputs were not recorded" is said only where that is so.
TEST(TrueSentences, WhyNothingIsKnownOfTheInputs) {
  const auto run = [](double by) {
    DumpBuilder b;
    b.Call("Functional.mse_loss.0.forward").In(Numbers(2, -2, 0.2, 7)).Out(Numbers(by, 0, 1, 9));
    return b.Take();
  };
  Comparison c = MustCompare(run(1), run(2));
  const auto said = [&] { return DescribeInputs(c, 0, SummarizeCall(c, 0)); };
  EXPECT_THAT(said(), testing::StartsWith("its inputs are "));
  c.measures[0] = {.verdict = RowVerdict::kUnknown, .reason = Reason::kOtherParts};
  EXPECT_EQ(said(), "its inputs are parts of a batch that the two runs divide otherwise");
  c.measures[0].reason = Reason::kOtherForm;
  EXPECT_EQ(said(), "none of its inputs has a counterpart to compare");
  c.measures[0].reason = Reason::kNothingRecorded;
  EXPECT_EQ(said(), "its inputs were not recorded");
}

// "No divergence (largest 6e+06 roundings)" is no sentence: the reason belongs to it.
TEST(TrueSentences, LargeRoundingsHaveTheirReason) {
  const auto run = [](double by) {
    DumpBuilder b;
    Tensor x = Scaled(Numbers(2, -2, 0.2, 7), by);
    b.Call("Torch.sub.0.forward").In(Numbers(1, -1, 0, 3)).Out(x);
    return b.Take();
  };
  Comparison c = MustCompare(run(1e-7), run(0));
  Measure& m = c.measures[1];
  m = {.verdict = RowVerdict::kNoise, .reason = Reason::kEnlarged, .severity = 6e6};
  EXPECT_EQ(FindingsOf(c).why_largest_noise,
            "Torch.sub.0.forward.output.0: this kind of operation enlarges the rounding of its "
            "inputs");
  EXPECT_THAT(
      TerminalReport(c, {.width = 400}),
      HasSubstr("difference, 6.0e+06 roundings of its dtype, is Torch.sub.0.forward.output.0: "
                "this kind of operation"));
  m.reason = Reason::kNone;
  EXPECT_EQ(FindingsOf(c).why_largest_noise, "");
}

}  // namespace
}  // namespace msprobe::compare
