// Sentences of a report that must never be false.
#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <string>

#include "engine/compare/explain/evidence.h"
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
    EXPECT_THAT(c.first.why.English(),
                HasSubstr("buffer layers.0.inv_freq differs already in the weights"));
    EXPECT_THAT(c.first.why.English(), Not(HasSubstr("no recorded operation made")));
    EXPECT_THAT(c.first.why.English(), Not(HasSubstr("still right")));
    EXPECT_THAT(c.first.advice.English(), HasSubstr("checkpoints"));
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
  EXPECT_THAT(c.first.why.English(),
              HasSubstr("layers.0.inv_freq differs already in the weights file"));
  EXPECT_THAT(c.first.why.English(), Not(HasSubstr("still right")));
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
  EXPECT_THAT(c.first.why.English(),
              HasSubstr("layers.0.inv_freq differs already in the weights file"));
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
    return MustCompare(build(target, 3e-4), build(golden, 0)).first.advice.English();
  };
  EXPECT_THAT(advice("cpu", "cpu"), Not(HasSubstr("TF32")));
  EXPECT_THAT(advice("cpu", "cpu"), HasSubstr("bfloat16"));
  EXPECT_THAT(advice("cuda: NVIDIA H100", "cpu"), HasSubstr("TF32"));
  EXPECT_THAT(advice("npu: Ascend910B", "cuda: NVIDIA H100"), HasSubstr("HF32"));
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

// "its inputs were not recorded" is said only where that is so.
TEST(TrueSentences, WhyNothingIsKnownOfTheInputs) {
  const auto run = [](double by) {
    DumpBuilder b;
    b.Call("Functional.mse_loss.0.forward").In(Numbers(2, -2, 0.2, 7)).Out(Numbers(by, 0, 1, 9));
    return b.Take();
  };
  Comparison c = MustCompare(run(1), run(2));
  const auto said = [&] { return DescribeInputs(c, 0, SummarizeCall(c, 0)).English(); };
  EXPECT_THAT(said(), testing::StartsWith("its inputs are "));
  c.measures[0] = {.verdict = RowVerdict::kUnknown, .reason = Reason::kOtherForm};
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

// A report without its line ends.
std::string OneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// The first number of a sentence says what is counted, and what is wrong inside a module is not
// before it.
TEST(TrueSentences, EarlierCallsAreCalls) {
  Comparison c = MustCompare(TwoBeginnings(0.1), TwoBeginnings(0));
  EXPECT_EQ(DescribeEarlierCalls(c, {.unjudged = 2}), "2 calls before it could not be judged");
  EXPECT_EQ(DescribeEarlierCalls(c, {.diverged = 1, .unjudged = 2}),
            "1 call before it differs as well, 2 could not be judged");
  EXPECT_EQ(DescribeEarlierCalls(c, {.equal = 3, .unjudged = 1}),
            "3 calls before it are equal, 1 could not be judged");
  ASSERT_EQ(EntryName(c, 2), "Module.net.Net.forward.0");
  EXPECT_EQ(CountEarlierCalls(c, 2).diverged, 1) << "that inside it does not count";
}

// A gradient is recorded before the backward call that makes it, with the same wrong numbers.
TEST(TrueSentences, AGradientIsNotWrongBeforeItsCall) {
  const auto run = [](double error) {
    DumpBuilder b;
    b.Call("Module.fc.Linear.forward.0").In(Numbers(1, -1, 0, 3)).Out(Numbers(2, -2, 0, 5));
    b.Call("Module.fc.Linear.parameters_grad.0").Grad("w", Scaled(Numbers(6, -2, 1, 9), error));
    b.Call("Functional.linear.0.backward").In(Numbers(3, -1, 0, 4));
    b.Out(Scaled(Numbers(6, -2, 1, 9), error));
    return b.Take();
  };
  const Comparison c = MustCompare(run(0.1), run(0));
  EXPECT_THAT(c.first.why.English(), Not(HasSubstr("as well")));
}

// A dump says which module enters compiled code: the calls that the other run made there are no
// calls that it lacks, and the module is compared at its borders.
Dump Pooled(bool compiled, double error, bool lacks_norm = false) {
  DumpBuilder b;
  const Tensor x = Numbers(1, -1, 0, 3), y = Numbers(2, -2, 0.1, 5),
               z = Scaled(Numbers(4, -2, 0.1, 6), error);
  b.Call("Functional.conv2d.0.forward").In(x).Out(y);
  if (!compiled) {
    b.Call("Functional.relu.0.forward").In(y).Out(Numbers(2, 0, 0.3, 4));
    b.Parent("Module.down2.Down.forward.0");
    b.Call("Functional.avg_pool2d.0.forward").In(Numbers(2, 0, 0.3, 4)).Out(z);
    b.Parent("Module.down2.pool.AvgPool2d.forward.0");
    b.Call("Module.down2.pool.AvgPool2d.forward.0").In(Numbers(2, 0, 0.3, 4)).Out(z);
    b.Parent("Module.down2.Down.forward.0");
  }
  b.Call("Module.down2.Down.forward.0").In(y).Out(z);
  if (!lacks_norm) b.Call("Functional.norm.0.forward").In(z).Out(Scaled(x, error));
  if (compiled) b.dump().compiled = {{.module = "Module.down2.Down", .line = "m.py:3 y = f(x)"}};
  return b.Take();
}

TEST(TrueSentences, CompiledCodeIsComparedAtItsBorders) {
  const Comparison same = MustCompare(Pooled(true, 0), Pooled(false, 0));
  EXPECT_EQ(same.first.pair, -1) << same.first.why.English();
  const std::string calm = OneLine(TerminalReport(same, {.width = 400, .whole = true}));
  EXPECT_THAT(calm,
              HasSubstr("down2 (Down) runs compiled code in the target (torch.compile): 3 "
                        "calls that the golden made there are compared at its borders alone"));
  for (const char* never : {"only in the golden", "rewritten", "skips", "calls nothing"})
    EXPECT_THAT(calm, Not(HasSubstr(never)));
  const Comparison wrong = MustCompare(Pooled(true, 0.1), Pooled(false, 0));
  EXPECT_EQ(EntryName(wrong, wrong.first.pair), "Module.down2.Down.forward.0");
  EXPECT_THAT(wrong.first.why.English(),
              HasSubstr("it runs compiled code in the target (torch.compile)"));
  EXPECT_THAT(wrong.first.advice.English(), HasSubstr("without torch.compile"));
  EXPECT_THAT(wrong.first.advice.English(), Not(HasSubstr("none of the")));
  // What is missing elsewhere is still missing.
  const Comparison other = MustCompare(Pooled(true, 0, true), Pooled(false, 0));
  EXPECT_EQ(FindingsOf(other).summary.golden_only_calls, 1);
  EXPECT_EQ(FindingsOf(other).summary.compiled_calls, 3);
}

// A function outside of all modules is compiled: the value that comes out of it is the first wrong
// one.
TEST(TrueSentences, AValueOfACompiledFunctionIsSaidToComeFromIt) {
  const auto run = [](bool compiled, double error) {
    DumpBuilder b;
    const Tensor z = Scaled(Numbers(4, -2, 0.1, 6), error);
    b.Call("Functional.conv2d.0.forward").In(Numbers(1, -1, 0, 3)).Out(Numbers(2, -2, 0, 5));
    if (!compiled) b.Call("Torch.exp.0.forward").In(Numbers(2, -2, 0, 5)).Out(z);
    b.Call("Torch.sum.0.forward").In(z).Out(Scaled(Numbers(9, 9, 9, 9), error));
    if (compiled) b.dump().compiled = {{.module = "", .line = "m.py:3 y = f(x)"}};
    return b.Take();
  };
  const Comparison c = MustCompare(run(true, 0.1), run(false, 0));
  EXPECT_THAT(c.first.why.English(),
              HasSubstr("it comes out of compiled code (torch.compile) of the target, "
                        "entered at m.py:3 y = f(x)"));
}

// At level L1 no call of the compiled module itself is recorded: its line is given, not that of the
// module which takes the wrong value.
TEST(TrueSentences, AValueOfACompiledModuleHasTheLineOfThatModule) {
  const auto run = [](bool compiled, double error) {
    DumpBuilder b;
    const Tensor z = Scaled(Numbers(4, -2, 0.1, 6), error);
    b.Call("Functional.conv2d.0.forward").In(Numbers(1, -1, 0, 3)).Out(Numbers(2, -2, 0, 5));
    b.InModule("Module.stem.Conv2d").At("m.py", 3, "x = stem(x)");
    if (!compiled) {
      b.Call("Functional.gelu.0.forward").In(Numbers(2, -2, 0, 5)).Out(z);
      b.InModule("Module.mlp.act.GELU").At("m.py", 20, "return act(x)");
    }
    b.Call("Torch.sum.0.forward").In(z).Out(Scaled(Numbers(9, 9, 9, 9), error));
    b.InModule("Module.head.Sum").At("m.py", 30, "return sum(x)");
    if (compiled) b.dump().compiled = {{.module = "Module.mlp.Mlp", .line = "m.py:4 x = mlp(x)"}};
    return b.Take();
  };
  const Comparison c = MustCompare(run(true, 0.1), run(false, 0));
  EXPECT_EQ(c.first.module, "mlp (Mlp)");
  EXPECT_EQ(c.first.source_line, "m.py:4 x = mlp(x)");
  EXPECT_THAT(c.first.why.English(),
              HasSubstr("it comes out of compiled code (torch.compile) of the target "
                        "in mlp (Mlp), entered at m.py:4 x = mlp(x)"));
}

// Two dropouts; each draw begins with a state of the generator.
struct Draws {
  std::string seed = "7", begin = "s0", first = "s0", second = "s1";
  bool extra = false;  // a call between the two that draws
  bool again = false;  // the second repeats the first in a recomputation
  double error = 0;    // of the second's result
};
Dump Drawn(const Draws& d) {
  DumpBuilder b;
  const auto draws = [&](const std::string& state) {
    b.dump().random_draws.push_back(
        {static_cast<uint32_t>(b.dump().records.size() - 1), b.dump().arena.emplace_back(state)});
  };
  const auto dropout = [&](int call, const std::string& state, double error) {
    b.Call("Functional.dropout." + std::to_string(call) + ".forward").In(Numbers(1, -1, 0, 3));
    b.Value("p", "float", "0.5").Out(Scaled(Numbers(2, -2, 0, 5), error));
    b.At("m.py", 3, "y = F.dropout(x)");
    draws(state);
  };
  dropout(0, d.first, 0);
  if (d.extra) {
    b.Call("Torch.rand.0.forward").Value("size", "int", "3").Out(Numbers(0.9, 0.1, 0.5, 1));
    b.At("m.py", 9, "noise = torch.rand(3)");
    draws("s1");
  }
  dropout(1, d.second, d.error);
  if (d.again) {
    auto& frames = b.dump().stacks.back();
    frames.push_back("File torch/utils/checkpoint.py, line 9, in recompute_fn, \n fn(*args)");
  }
  b.dump().provenance = {{"seed", b.dump().arena.emplace_back(d.seed)},
                         {"random_state", b.dump().arena.emplace_back(d.begin)}};
  return b.Take();
}

TEST(TrueSentences, WhyOtherRandomNumbersWereDrawn) {
  const auto said = [](const Draws& target, const Draws& golden) {
    const Comparison c = MustCompare(Drawn(target), Drawn(golden));
    return c.first.why.English() + " NEXT " + c.first.advice.English();
  };
  EXPECT_THAT(said({.seed = "8", .begin = "t", .first = "t", .second = "u", .error = 0.1}, {}),
              HasSubstr("fix the seed on both sides"));
  const std::string state = said({.begin = "t0", .first = "t0", .second = "u", .error = 0.1}, {});
  EXPECT_THAT(state, HasSubstr("both runs have the seed 7, and the state of the generator was"));
  EXPECT_THAT(state, Not(HasSubstr("fix the seed")));
  EXPECT_THAT(said({.second = "s2", .extra = true, .error = 0.1}, {}),
              HasSubstr("before it only the target calls Torch.rand.0.forward (m.py:9 in forward: "
                        "noise = torch.rand(3)), which draws, too"));
  EXPECT_THAT(said({.second = "s2", .error = 0.1}, {}),
              HasSubstr("between Functional.dropout.0.forward and Functional.dropout.1.forward one "
                        "run drew other ones in code that is not recorded"));
  EXPECT_THAT(
      said({.second = "s2", .again = true, .error = 0.1}, {.second = "s0", .again = true}),
      HasSubstr("recomputation (activation checkpointing) that did not restore the state of "
                "the random generator: Functional.dropout.0.forward, which it repeats"));
  // A run that does not say its state at this call, or at the begin of the step.
  const std::string silent = said({.second = "", .error = 0.1}, {});
  EXPECT_THAT(silent, HasSubstr("between Functional.dropout.0.forward and"));
  const std::string unknown =
      said({.begin = "", .first = "t0", .second = "u", .error = 0.1}, {.begin = ""});
  EXPECT_THAT(unknown, HasSubstr("it draws random numbers, and both runs have the seed 7"));
  for (const std::string& text : {silent, unknown})
    EXPECT_THAT(text, Not(HasSubstr("already when this step began")));
  const std::string same = said({.error = 0.1}, {});
  EXPECT_THAT(same, Not(HasSubstr("seed"))) << "both drew from one state";
}

// What the golden calls and the target records nowhere may run in code that is not recorded.
TEST(TrueSentences, AMissingCallIsSkippedOnlyWhereItsInputIsPassedOn) {
  const auto run = [](bool calls, bool passes_on) {
    DumpBuilder b;
    const Tensor x = Numbers(1, -1, 0, 3), y = Numbers(2, -2, 0, 5), z = Numbers(3, -2, 0, 7);
    b.Call("Torch.a.0.forward").In(x).Out(y);
    if (calls) b.Call("Torch.scale.0.forward").In(y).Out(z);
    const Tensor taken = calls ? z : passes_on ? y : Numbers(6, -2, 1, 8);
    b.Call("Torch.b.0.forward").In(taken).Out(calls ? x : Numbers(5, -3, 0, 9));
    return b.Take();
  };
  EXPECT_EQ(MustCompare(run(false, true), run(true, true)).first.advice,
            "the target skips an operation that the golden runs");
  EXPECT_EQ(MustCompare(run(true, true), run(false, true)).first.advice,
            "the target runs an operation that the golden does not have");
  EXPECT_THAT(MustCompare(run(false, false), run(true, false)).first.advice.English(),
              HasSubstr("or computes it in code that is not recorded"));
}

// A weight differs when the step begins.
TEST(TrueSentences, OneSeedAndEqualWeightsAreNoOtherInitialisation) {
  const auto run = [](const char* seed, const char* weight, double error, const char* other) {
    DumpBuilder b;
    b.Call("Functional.linear.0.forward").In(Numbers(1, -1, 0, 3).Print("x"));
    b.In(Scaled(Numbers(3, 1, 2, 6), error).Print(weight)).Out(Scaled(Numbers(4, 1, 2, 9), error));
    b.dump().weights = {{.name = "q.weight", .fingerprint = weight},
                        {.name = "q.lora_A.weight", .fingerprint = other}};
    b.dump().provenance = {{"seed", seed}};
    return b.Take();
  };
  const Comparison merged = MustCompare(run("7", "aa", 0.1, "l"), run("7", "bb", 0, "l"));
  EXPECT_THAT(merged.first.advice.English(), HasSubstr("1 other weight is the same in both runs"));
  EXPECT_THAT(merged.first.advice.English(), HasSubstr("adapters that were merged into it"));
  EXPECT_THAT(merged.first.advice.English(), Not(HasSubstr("initialisation")));
  EXPECT_THAT(merged.run_start.data.English(), Not(HasSubstr("other data")));
  EXPECT_THAT(MustCompare(run("7", "aa", 0.1, "k"), run("7", "bb", 0, "l")).first.advice.English(),
              HasSubstr("initialisation"));
}

// The data are the same, and the target passes them to another call.
TEST(TrueSentences, DataThatTheOtherRunHasElsewhereAreNoOtherData) {
  const auto run = [](const Tensor& a, const Tensor& b) {
    DumpBuilder d;
    d.Call("Torch.f.0.forward").In(a).In(b).Out(Scaled(Numbers(2, -2, 0, 5), a.max));
    for (Leaf& leaf : d.dump().leaves) leaf.requires_grad = "False";
    return d.Take();
  };
  const Tensor x = Numbers(1, -1, 0, 3).Print("x"), y = Numbers(7, -1, 0, 9).Print("y");
  EXPECT_THAT(MustCompare(run(x, y), run(y, x)).run_start.data.English(),
              Not(HasSubstr("other data")));
  const Tensor z = Numbers(8, -1, 0, 9).Print("z");
  EXPECT_THAT(MustCompare(run(x, z), run(x, y)).run_start.data.English(), HasSubstr("other data"));
}

// Values of paired calls in another form, and none on one side only.
TEST(TrueSentences, NoValueIsSaidToBeAlone) {
  const auto run = [] {
    return DumpBuilder().Call("Torch.f.0.forward").In(Numbers(1, -1, 0, 3)).Take();
  };
  Comparison c = MustCompare(run(), run());
  const Row row = c.rows[0];
  c.rows.push_back(row);
  c.measures.push_back({.verdict = RowVerdict::kUnknown, .reason = Reason::kOtherForm});
  ++c.pairs[0].row_count;
  const std::string text = OneLine(TerminalReport(c, {.width = 400, .whole = true}));
  EXPECT_THAT(text, Not(HasSubstr("0 values")));
  EXPECT_THAT(text, HasSubstr("1 value of paired calls has another form"));
}

}  // namespace
}  // namespace msprobe::compare
