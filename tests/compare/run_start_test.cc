#include "engine/compare/measure/run_start.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "engine/compare/explain/findings.h"
#include "engine/dump/read/step_in_path.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::MustCompare;
using test::Numbers;

// A linear layer reads the data, a second linear layer reads its output.
Dump StartedRun(const char* data, const char* made, const char* weight) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward")
      .In(Numbers(1, -1, 0, 3).Print(data))
      .In(Numbers(1, -1, 0, 2).Print(weight))
      .Out(Numbers(2, -2, 0, 5).Print(made));
  b.Call("Functional.relu.0.forward")
      .In(Numbers(2, -2, 0, 5).Print(made))
      .Out(Numbers(2, 0, 1, 4).Print(made));
  Dump dump = b.Take();
  dump.weights = {{.name = "fc.weight", .fingerprint = weight}};
  dump.provenance = {{"torch", weight}, {"seed", "7"}};
  return dump;
}

TEST(RunStartTest, TheSameWeightsAndData) {
  const RunStart b = MustCompare(StartedRun("d", "m", "w"), StartedRun("d", "m", "w")).run_start;
  EXPECT_EQ(b.weights, "the same weights (1)");
  EXPECT_EQ(b.data, "the same data (1 tensor from outside)");
  EXPECT_EQ(b.settings, "");
}

// Before the weights, which differ then, too.
TEST(RunStartTest, TwoStepsAreSaidFirst) {
  const auto at = [](const char* path) {
    Dump dump = StartedRun("d", "m", "w");
    dump.path = path;
    return dump;
  };
  EXPECT_EQ(MustCompare(at("a/step3/rank0/dump.json"), at("b/step2/dump.json")).run_start.mistake,
            "step 3 of the target is compared with step 2 of the golden");
  const Findings found =
      FindingsOf(MustCompare(at("a/step3/rank0/dump.json"), at("b/step2/dump.json")));
  EXPECT_EQ(ConditionsOf(found).front().label, "note");
  for (const char* golden : {"b/step3/dump.json", "b/dump.json", "step4b/dump.json"})
    EXPECT_EQ(MustCompare(at("step3/dump.json"), at(golden)).run_start.mistake, "");
}

TEST(RunStartTest, RanksOfOtherLayoutsAreSaid) {
  const auto of = [](const char* path, const char* ranks) {
    Dump dump = StartedRun("d", "m", "w");
    dump.path = path;
    if (*ranks != '\0')
      dump.provenance.emplace_back("parallel",
                                   fmt::format(R"({{"groups": [{{"ranks": {}}}]}})", ranks));
    return dump;
  };
  const auto said = [](Dump target, Dump golden) {
    return MustCompare(std::move(target), std::move(golden)).run_start.mistake.English();
  };
  const char* const rank = "a/step0/rank0/dump.json";
  const std::string why =
      ": ranks of other layouts hold other parts of values, and what differs may be no error; "
      "record both runs on the same number of ranks";
  EXPECT_EQ(said(of(rank, "[0, 1]"), of(rank, "[0, 1, 2, 3]")),
            "the target ran on 2 ranks, the golden on 4" + why);
  EXPECT_EQ(said(of("b/step0/rank/dump.json", ""), of(rank, "[0, 1]")),
            "the target ran on 1 rank, the golden on 2" + why);
  EXPECT_EQ(said(of(rank, "[0, 1]"), of(rank, "[0, 1]")), "");
  EXPECT_EQ(said(of(rank, "[0, 1]"), of(rank, "")), "") << "an older dump does not say it";
  EXPECT_EQ(said(of(rank, "[0, 1]"), of(rank, "3")), "") << "damaged";
}

TEST(StepInPath, TheInnermostFolderOfAStep) {
  EXPECT_EQ(dump::StepInPath("runs/step1/x/step12/rank0/dump.json"), 12);
  EXPECT_EQ(dump::StepInPath("step0"), 0);
  for (const char* path : {"", "/", "steps/dump.json", "step/1", "mystep3/d", "step-1/d",
                           "step3x/d", "step99999999999/d"})
    EXPECT_EQ(dump::StepInPath(path), -1) << path;
}

TEST(RunStartTest, OtherWeightsAreNoData) {
  Dump target = StartedRun("d", "m", "w");
  target.weights.push_back({.name = "only.here", .fingerprint = "x"});
  const RunStart b = MustCompare(std::move(target), StartedRun("d", "n", "v")).run_start;
  EXPECT_EQ(b.weights,
            "other weights (1 of 1 differ, first fc.weight, 1 on one side only, first only.here of "
            "the target)");
  EXPECT_EQ(b.settings, "torch w in the target, v in the golden");
}

TEST(RunStartTest, WrappersDoNotHideTheNamesOfWeights) {
  Dump target = StartedRun("d", "m", "w");
  target.weights[0].name = "module._orig_mod.fc.weight";
  EXPECT_EQ(MustCompare(std::move(target), StartedRun("d", "m", "w")).run_start.weights,
            "the same weights (1)");
  Dump other = StartedRun("d", "m", "w");
  other.weights[0].name = "head.weight";
  EXPECT_EQ(MustCompare(std::move(other), StartedRun("d", "m", "w")).run_start.weights,
            "weights that have no name in common");
}

TEST(RunStartTest, OtherData) {
  Dump golden = StartedRun("e", "n", "w");
  golden.leaves[0].max_value = 9;
  golden.leaves[0].max = "9";
  const RunStart b = MustCompare(StartedRun("d", "m", "w"), std::move(golden)).run_start;
  EXPECT_EQ(b.data, "other data (Functional.linear.0.forward.input.0 differs)");
}

// The golden records the call that makes what relu takes; the target runs that code compiled.
TEST(RunStartTest, WhatTheOtherRunComputesIsNoData) {
  const auto run = [](bool recorded, const char* made) {
    DumpBuilder b;
    b.Call("Functional.linear.0.forward")
        .In(Numbers(1, -1, 0, 3).Print("d"))
        .Out(Numbers(2, -2, 0, 5).Print("m"));
    if (recorded)
      b.Call("Functional.silu.0.forward")
          .In(Numbers(2, -2, 0, 5).Print("m"))
          .Out(Numbers(3, -1, 0, 5).Print(made))
          .InModule("Module.block.Block");
    const double max = recorded ? 3 : 4;
    b.Call("Functional.relu.0.forward")
        .In(Numbers(max, -1, 0, 5).Print(made))
        .Out(Numbers(max, 0, 1, 4).Print(recorded ? "r" : "q"));
    return b.Take();
  };
  Dump target = run(false, "t");
  target.compiled = {{.module = "Module.block.Block", .line = "train.py:7"}};
  const RunStart b = MustCompare(std::move(target), run(true, "g")).run_start;
  EXPECT_EQ(b.data, "the same data (1 tensor from outside up to the divergence)");
}

TEST(RunStartTest, UnknownFactsAreNotReported) {
  Dump target = StartedRun("d", "m", "w"), golden = StartedRun("d", "m", "w");
  target.weights.clear();
  golden.provenance.clear();
  const RunStart b = MustCompare(std::move(target), std::move(golden)).run_start;
  EXPECT_EQ(b.weights, "");
  EXPECT_EQ(b.settings, "");
}

}  // namespace
}  // namespace msprobe::compare
