// Wrong updates of weights between two steps, by weights.json: which weights, what they share.
#include "engine/compare/ranks/wrong_updates.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "engine/base/messages/message.h"
#include "engine/compare/ranks/drifting_ranks.h"
#include "tests/base/temporary_folder.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::MustCompare;
using test::Value;
using ::testing::HasSubstr;
using ::testing::Not;

WeightUpdate Update(std::string name, int dimensions, double target, double golden) {
  return {.name = std::move(name),
          .dimensions = dimensions,
          .wrong = target != golden,
          .before = {10, 10},
          .after = {10 + target, 10 + golden}};
}

TEST(WrongUpdates, SaysWhatTheyShare) {
  const std::vector<WeightUpdate> decay = {
      Update("a.weight", 2, -1, -1), Update("a.bias", 1, -0.5, 0), Update("b.weight", 2, -1, -1),
      Update("b.bias", 1, -0.4, 0)};
  EXPECT_EQ(
      DescribeWrongUpdates(decay),
      "2 of 4 parameters moved differently: all those with 1 dimension and no others (a.bias, "
      "b.bias); the golden does not move them");
  const std::vector<WeightUpdate> skipped = {
      Update("a.weight", 2, -1, -1), Update("a.bias", 1, -1, -1), Update("b.weight", 2, 0, -1),
      Update("b.bias", 1, 0, -1)};
  EXPECT_THAT(DescribeWrongUpdates(skipped).English(), HasSubstr("all those of b and no others"));
  EXPECT_THAT(DescribeWrongUpdates(skipped).English(), HasSubstr("the target does not move them"));
}

TEST(WrongUpdates, WhatWasZeroShowsNoDecay) {
  std::vector<WeightUpdate> updates = {Update("a.weight", 2, -1, -1), Update("a.bias", 1, -0.5, 0),
                                       Update("b.bias", 1, 0.3, 0.3)};
  EXPECT_THAT(DescribeWrongUpdates(updates).English(), Not(HasSubstr("dimension")));
  updates[2].before = {0, 0};
  EXPECT_THAT(DescribeWrongUpdates(updates).English(),
              HasSubstr("all those with 1 dimension and no others but some that were 0 (a.bias)"));
}

TEST(WrongUpdates, SaysHowFarTheyMoved) {
  const std::vector<WeightUpdate> rate = {Update("a.weight", 2, 3, 1),
                                          Update("a.bias", 1, 0.6, 0.2),
                                          Update("b.weight", 2, -1.5, -0.5)};
  EXPECT_EQ(
      DescribeWrongUpdates(rate),
      "3 of 3 parameters moved differently: a.weight, a.bias, b.weight; the target moves their "
      "norms 3 times as far as the golden");
}

TEST(WrongUpdates, AFactorOfOneSaysNothing) {
  const std::vector<WeightUpdate> nearly = {Update("a.weight", 2, 3.002, 3),
                                            Update("b.weight", 2, -1.001, -1)};
  EXPECT_THAT(DescribeWrongUpdates(nearly).English(), Not(HasSubstr("as far")));
}

TEST(WrongUpdates, NothingIsWrong) {
  const std::vector<WeightUpdate> same = {Update("a.weight", 2, 3, 3)};
  EXPECT_EQ(DescribeWrongUpdates(same), "");
  EXPECT_EQ(DescribeWrongUpdates({}), "");
}

TEST(WrongUpdates, BuffersAreToldApart) {
  std::vector<WeightUpdate> updates = {Update("a.weight", 2, 3, 3), Update("cache", 2, 1, 0)};
  updates[1].trained = false;
  EXPECT_EQ(DescribeWrongUpdates(updates),
            "1 of the values that no optimizer moves differs: cache");
}

// Two steps of two runs, with files.
class StepsTest : public ::testing::Test {
 protected:
  // `norm`: of fc.weight when the step begins.
  RankResult Step(const std::string& run, int32_t step, int32_t rank, double target, double golden,
                  bool agrees) {
    for (const bool is_target : {true, false}) {
      const double norm = is_target ? target : golden;
      folder_.Write(
          Place(run, is_target, step, rank) + "/weights.json",
          fmt::format("{{\n\"module.fc.weight\": {{\"type\":\"torch.Tensor\",\"dtype\":"
                      "\"torch.float32\",\"shape\":[2, 2],\"Max\":{0},\"Min\":0.0,\"Mean\":0.5,"
                      "\"Norm\":{0},\"requires_grad\":true,\"fp\":\"{1:0>10}A\"}},\n"
                      "\"fc.bias\": {{\"dtype\":\"torch.float32\",\"shape\":[2],\"Max\":1.0,"
                      "\"Min\":0.0,\"Mean\":0.5,\"Norm\":1.0,\"requires_grad\":true,\"fp\":"
                      "\"AAAAAAAAAAA\"}}\n}}\n",
                      norm, static_cast<int64_t>(norm * 1000)));
    }
    const auto dump = [&](bool wrong) {
      DumpBuilder b;
      b.Call("Functional.linear.0.forward").In(Value(1)).In(Value(2, wrong ? 0.5 : 0));
      b.Out(Value(3, wrong ? 0.5 : 0));
      return b.Take();
    };
    RankResult r = SummarizeRank(MustCompare(dump(!agrees), dump(false)), step, rank);
    r.target = folder_.path() + "/" + Place(run, true, step, rank);
    r.golden = folder_.path() + "/" + Place(run, false, step, rank);
    return r;
  }
  static std::string Place(const std::string& run, bool target, int32_t step, int32_t rank) {
    return fmt::format("{}/{}/step{}/rank{}", run, target ? "target" : "golden", step, rank);
  }
  TemporaryFolder folder_;
};

TEST_F(StepsTest, TheUpdateIsNamedInsteadOfTheCall) {
  std::vector<RankResult> results = {Step("a", 0, -1, 4, 4, true), Step("a", 1, -1, 6, 5, false)};
  NameWrongUpdates(results);
  EXPECT_EQ(results[0].wrong_update_after, -1);
  EXPECT_EQ(results[1].wrong_update_after, 0);
  EXPECT_EQ(results[1].first_name, "update of the weights after step 0");
  EXPECT_THAT(results[1].first.why.English(),
              HasSubstr("1 of 2 parameters moved differently: all those with 2 "
                        "dimensions and no others (fc.weight)"));
  EXPECT_THAT(results[1].first.why.English(),
              HasSubstr("It shows first in Functional.linear.0.forward"));
}

// Adam with another beta: the first update keeps nothing, the second one is apart by `apart` of its
// movement. Rounding of the gradients explains as much in bfloat16.
TEST_F(StepsTest, AnUpdateOfAnotherHistory) {
  const auto run = [&](const std::string& name, double first, double second, double noise) {
    std::vector<RankResult> results;
    for (const int32_t step : {0, 1, 2}) {
      for (const bool target : {true, false}) {
        std::string text = "{";
        for (const int weight : {1, 2, 3, 4}) {
          const double off = !target ? 0 : step == 1 ? first : step == 2 ? first + second : 0;
          const double norm = weight * (10 + 0.1 * (step + off * weight));
          text += fmt::format(
              "{}\"fc{}.weight\": {{\"dtype\":\"torch.float32\",\"shape\":[2, 2],\"Max\":{},"
              "\"Min\":0.0,\"Norm\":{},\"requires_grad\":true,\"fp\":\"{:0>10}A\"}}",
              weight > 1 ? ",\n" : "", weight, norm / 2, norm, static_cast<int64_t>(norm * 1e8));
        }
        folder_.Write(Place(name, target, step, -1) + "/weights.json", text + "}\n");
      }
      DumpBuilder b;
      b.Call("Functional.linear.0.forward").In(Value(1)).Out(Value(3));
      DumpBuilder g;
      g.Call("Functional.linear.0.forward").In(Value(1)).Out(Value(3, step == 0 ? 0 : 1e-7));
      RankResult r = SummarizeRank(MustCompare(b.Take(), g.Take()), step, -1);
      r.target = folder_.path() + "/" + Place(name, true, step, -1);
      r.golden = folder_.path() + "/" + Place(name, false, step, -1);
      r.weights.gradient_noise = noise;
      results.push_back(std::move(r));
    }
    JudgeSteps(results);
    return results;
  };
  const std::vector<RankResult> beta = run("beta", 0, 0.01, 1e-7);
  EXPECT_EQ(beta[1].wrong_update_after, -1);
  ASSERT_EQ(beta[2].wrong_update_after, 1);
  EXPECT_THAT(beta[2].first.why.English(),
              HasSubstr("the update before it moved them alike: as with other "
                        "betas or another momentum"));
  const std::vector<RankResult> at_once = run("at_once", 0.01, 0, 1e-7);
  ASSERT_EQ(at_once[1].wrong_update_after, 0);
  EXPECT_THAT(at_once[1].first.why.English(), HasSubstr("by no common factor"));
  EXPECT_EQ(run("bfloat16", 0, 0.01, 1e-3)[2].wrong_update_after, -1);
  EXPECT_EQ(run("right", 0, 1e-6, 1e-7)[2].wrong_update_after, -1);
}

TEST_F(StepsTest, NoCheckpointIsToBlameBehindAStepThatAgrees) {
  std::vector<RankResult> results = {Step("n", 0, -1, 4, 4, true), Step("n", 1, -1, 4, 4, false)};
  results[1].first.advice = "compare the checkpoints, the initialisation and its seed"_t;
  NameWrongUpdates(results);
  EXPECT_THAT(results[1].first.advice.English(), HasSubstr("compare what runs between the steps"));
  EXPECT_THAT(results[1].first.why.English(),
              HasSubstr("step 0 agrees, so what put the weights apart"));
}

// bn.moving_mean of MindSpore is bn.running_mean of PyTorch. A bias whose gradient is rounding is
// moved by chance.
TEST_F(StepsTest, OfTwoFrameworks) {
  const auto step = [&](int32_t number, double statistic, double bias, bool target_is_mindspore) {
    for (const bool target : {true, false}) {
      const bool mindspore = target == target_is_mindspore;
      const auto weight = [&](std::string_view name, double norm, bool trained) {
        return fmt::format(
            "\"{0}\": {{\"dtype\": \"{1}\", \"shape\": [2], \"Max\": {2}, \"Min\": 0.0, "
            "\"Norm\": {2}, \"requires_grad\": {3}, \"fp\": \"{4:0>10}A\"}}",
            name, mindspore ? "Float32" : "torch.float32", norm, trained,
            static_cast<int64_t>(norm * 1000));
      };
      folder_.Write(Place("f", target, number, 0) + "/weights.json",
                    fmt::format("{{{}, {}}}",
                                weight(mindspore ? "bn.moving_mean" : "bn.running_mean",
                                       target ? statistic : number + 1, false),
                                weight("conv.bias", target ? bias : number + 1, true)));
    }
    const auto dump = [] {
      DumpBuilder b;
      return b.Call("Functional.linear.0.forward").In(Value(1)).Out(Value(3)).Take();
    };
    RankResult r = SummarizeRank(MustCompare(dump(), dump()), number, -1);
    r.target = folder_.path() + "/" + Place("f", true, number, 0);
    r.golden = folder_.path() + "/" + Place("f", false, number, 0);
    r.weights.by_chance = {"conv.bias"};
    r.target_is_mindspore = target_is_mindspore, r.golden_is_mindspore = !target_is_mindspore;
    return r;
  };
  for (const bool target_is_mindspore : {true, false}) {
    std::vector<RankResult> results = {step(0, 1, 1, target_is_mindspore),
                                       step(1, 3, 4, target_is_mindspore)};
    NameWrongUpdates(results);
    EXPECT_EQ(results[1].wrong_update_after, 0);
    EXPECT_THAT(results[1].first.why.English(),
                HasSubstr("no optimizer moves differs: bn.running_mean"));
    results = {step(0, 1, 1, target_is_mindspore), step(1, 2, 4, target_is_mindspore)};
    NameWrongUpdates(results);
    EXPECT_EQ(results[1].wrong_update_after, -1) << results[1].first.why.English();
  }
}

TEST_F(StepsTest, AlsoWhereNoCallShowsIt) {
  std::vector<RankResult> results = {Step("a", 0, -1, 4, 4, true), Step("a", 1, -1, 6, 5, true)};
  NameWrongUpdates(results);
  EXPECT_EQ(results[1].wrong_update_after, 0);
  EXPECT_EQ(results[1].summary.verdict, RunVerdict::kDiffers);
  EXPECT_THAT(results[1].first.why.English(), HasSubstr("All calls of step 1 agree"));
}

// A decay that is decoupled moves weights apart by less than rounding explains for a layer.
TEST_F(StepsTest, OneUpdateBehindEqualBitsRoundsOnlyAFewTimes) {
  const auto named_after = [&](const std::string& run, int32_t later, double roundings) {
    const double off = 4000 * (1 + roundings * 0x1p-23);
    std::vector<RankResult> results = {Step(run, 0, -1, 4000, 4000, true),
                                       Step(run, later, -1, off, 4000, true)};
    NameWrongUpdates(results);
    return results[1].wrong_update_after;
  };
  EXPECT_EQ(named_after("a", 1, 20), 0);
  EXPECT_EQ(named_after("b", 1, 3), -1);
  EXPECT_EQ(named_after("c", 5, 20), -1) << "of the steps between them nothing is known";
}

TEST_F(StepsTest, AnUpdateIsJudgedByTheLimitsOfTheUser) {
  const auto named = [&](const std::string& run, double roundings, std::string_view yaml,
                         double tolerance = 1) {
    const double off = 4000 * (1 + roundings * 0x1p-23);
    std::vector<RankResult> results = {Step(run, 0, -1, 4000, 4000, true),
                                       Step(run, 1, -1, off, 4000, true)};
    for (RankResult& r : results) {
      r.thresholds = std::make_shared<ThresholdTable>(*ThresholdTable::Parse(yaml, "mine.yaml"));
      r.tolerance = tolerance;
    }
    NameWrongUpdates(results);
    return results[1].wrong_update_after == 0;
  };
  EXPECT_TRUE(named("a", 20, ""));
  EXPECT_FALSE(named("b", 20, "rounding: {float32: 256}"));
  EXPECT_FALSE(named("c", 20, "", 4));
  EXPECT_FALSE(named("d", 3, ""));
  EXPECT_TRUE(named("e", 3, "rounding: {float32: 16}"));
  // The limits are those of the comparison.
  const CompareOptions options{.tolerance = 4};
  EXPECT_EQ(SummarizeRank(MustCompare(Dump(), Dump(), options), 0, 0).tolerance, 4);
}

// A moving average of the weights, which no optimizer moves. One is computed with another rounding;
// the other has its elements in another order, which statistics do not show.
TEST_F(StepsTest, WhatTheProgramMovesMayRoundAndNotBeReordered) {
  const auto step = [&](const std::string& run, int32_t number, double by, bool reordered) {
    RankResult r = Step(run, number, 0, 1, 1, true);
    for (const bool is_target : {true, false}) {
      const double norm = 2 + (is_target ? by : 0);
      const char moved = by != 0 ? 'C' : 'A';  // by the golden
      const char print = is_target && (by != 0 || reordered) ? 'B' : moved;
      folder_.Write(
          Place(run, is_target, number, 0) + "/weights.json",
          fmt::format("{{\n\"mean\": {{\"dtype\":\"torch.float32\",\"shape\":[2],\"Max\":1.0,"
                      "\"Min\":0.0,\"Mean\":0.5,\"Norm\":{},\"requires_grad\":false,\"fp\":"
                      "\"{}AAAAAAAAAA\"}}\n}}\n",
                      norm, print));
    }
    return r;
  };
  const auto wrong = [&](const std::string& run, double by, bool reordered) {
    const RankResult before = step(run, 0, 0, false), after = step(run, 1, by, reordered);
    return UpdatesBetween(before, after, false).at(0).wrong;
  };
  EXPECT_FALSE(wrong("rounded", 4e-7, false));
  EXPECT_TRUE(wrong("reordered", 0, true));
  EXPECT_TRUE(wrong("other", 1e-3, false));
}

// Behind a step that agrees within rounding, too, a running statistic that is wrong is no rounding.
TEST_F(StepsTest, ABufferIsWrongBehindAStepThatRounds) {
  const auto step = [&](const std::string& run, int32_t number, double by) {
    RankResult r = Step(run, number, 0, 1, 1, true);
    r.largest_noise = 1;
    r.summary.verdict = RunVerdict::kNoise;
    for (const bool is_target : {true, false}) {
      folder_.Write(
          Place(run, is_target, number, 0) + "/weights.json",
          fmt::format("{{\n\"running\": {{\"dtype\":\"torch.float32\",\"shape\":[2],\"Max\":1.0,"
                      "\"Min\":0.0,\"Mean\":0.5,\"Norm\":{},\"requires_grad\":false,\"fp\":"
                      "\"{}{}AAAAAAAAA\"}}\n}}\n",
                      1 + number * (1 + (is_target ? by : 0)), number, is_target ? 'B' : 'A'));
    }
    return r;
  };
  for (const double by : {0.1, 1e-7}) {
    const std::string run = by > 1e-3 ? "wrong" : "rounded";
    std::vector<RankResult> steps = {step(run, 0, by), step(run, 1, by)};
    NameWrongUpdates(steps);
    EXPECT_EQ(steps[1].wrong_update_after, by > 1e-3 ? 0 : -1) << by;
  }
}

// Relations know the error with which each weight was left: what is beyond it is another update,
// though the weights moved nearly alike (another beta2 of Adam).
TEST_F(StepsTest, AWeightThatNothingRelatesIsAWrongUpdate) {
  const auto named = [&](const std::string& run, std::vector<std::string> unrelated, bool agrees) {
    std::vector<RankResult> steps = {Step(run, 0, -1, 4, 4, true),
                                     Step(run, 1, -1, 6.1, 6, agrees)};
    steps[0].largest_noise = 1;
    steps[0].summary.verdict = RunVerdict::kNoise;
    steps[1].weights.related = {unrelated.empty() ? "fc.weight" : "fc.bias"};
    steps[1].weights.unrelated = std::move(unrelated);
    NameWrongUpdates(steps);
    return steps[1].wrong_update_after == 0;
  };
  EXPECT_TRUE(named("unrelated", {"fc.weight"}, false));
  EXPECT_FALSE(named("related", {}, false));
  EXPECT_FALSE(named("unseen", {"fc.weight"}, true)) << "no call shows it";
}

// As compiled code of MindSpore is recorded: outputs alone. `moved`: how far the target's weight
// moves in step 0; the golden's moves by 0.01.
TEST_F(StepsTest, WhereNoCallIsRecordedWithItsWeightsTheirFilesTell) {
  const auto steps = [&](double moved, double error) {
    const auto dump = [](double apart) {
      DumpBuilder b;
      b.Call("Cell.fc.Dense.forward.0").Out(Value(3, apart));
      return b.Take();
    };
    std::vector<RankResult> results = {Step("c", 0, -1, 1, 1, true),
                                       Step("c", 1, -1, 1 + moved, 1.01, true)};
    for (const size_t step : {0, 1}) {
      RankResult r = SummarizeRank(MustCompare(dump(step == 0 ? 1e-7 : error), dump(0)),
                                   results[step].step, -1);
      r.target = results[step].target, r.golden = results[step].golden;
      results[step] = std::move(r);
    }
    EXPECT_EQ(results[0].first.pair, -1);
    EXPECT_EQ(results[1].first_name, "Cell.fc.Dense.forward.0");
    JudgeSteps(results);
    return results[1];
  };
  EXPECT_EQ(steps(0.010002, 5e-5).rounding_of_step, 0);
  EXPECT_EQ(steps(0.02, 5e-5).first_name, "update of the weights after step 0");
  // More than the movement of a weight explains.
  EXPECT_EQ(steps(0.010002, 0.1).first_name, "Cell.fc.Dense.forward.0");
}

TEST_F(StepsTest, OnlyTheFirstWrongStepAndOnlyWhereItBegins) {
  std::vector<RankResult> results = {Step("a", 0, -1, 4, 4, false), Step("a", 1, -1, 6, 5, false)};
  NameWrongUpdates(results);
  EXPECT_EQ(results[1].wrong_update_after, -1) << "the step before is wrong";
  results = {Step("b", 0, -1, 4, 4, true), Step("b", 1, -1, 5, 5, false)};
  NameWrongUpdates(results);
  EXPECT_EQ(results[1].wrong_update_after, -1) << "the weights are the same";
  results = {Step("c", 0, -1, 4, 3, true), Step("c", 1, -1, 6, 5, false)};
  NameWrongUpdates(results);
  EXPECT_EQ(results[1].wrong_update_after, -1) << "they were others before";
}

TEST_F(StepsTest, RanksThatLoseEachOther) {
  std::vector<RankResult> results = {Step("a", 0, 0, 4, 4, true), Step("a", 0, 1, 4, 4, true),
                                     Step("a", 1, 0, 6, 5, false), Step("a", 1, 1, 7, 5, false)};
  NameWrongUpdates(results);
  EXPECT_EQ(results[2].wrong_update_after, 0);
  EXPECT_EQ(results[3].wrong_update_after, 0);
  EXPECT_THAT(results[2].first.why.English(),
              HasSubstr("the ranks of the target no longer have the same weights, those of the "
                        "golden have: gradients or weights were not exchanged"));
  // In both runs each rank has weights of its own.
  results = {Step("b", 0, 0, 4, 4, true), Step("b", 0, 1, 4, 4, true), Step("b", 1, 0, 6, 5, false),
             Step("b", 1, 1, 7, 8, false)};
  NameWrongUpdates(results);
  EXPECT_EQ(results[2].wrong_update_after, 0);
  EXPECT_THAT(results[2].first.why.English(), Not(HasSubstr("no longer have the same weights")));
  // They had other weights before.
  results = {Step("c", 0, 0, 4, 4, true), Step("c", 0, 1, 3, 3, true), Step("c", 1, 0, 6, 5, false),
             Step("c", 1, 1, 7, 5, false)};
  NameWrongUpdates(results);
  EXPECT_THAT(results[2].first.why.English(), Not(HasSubstr("no longer have the same weights")));
  // One process only.
  results = {Step("d", 0, 0, 4, 4, true), Step("d", 1, 0, 6, 5, false)};
  NameWrongUpdates(results);
  EXPECT_THAT(results[1].first.why.English(), Not(HasSubstr("no longer have the same weights")));
}

TEST_F(StepsTest, TheStepAndTheParameterByWhichRanksDriftApart) {
  // Step 1 is wrong in the target, in both ranks; behind it they differ from each other.
  const auto run = [&](const std::string& name, bool swapped) {
    const auto step = [&](int32_t number, int32_t rank, double target, double golden, bool agrees) {
      return swapped ? Step(name, number, rank, golden, target, agrees)
                     : Step(name, number, rank, target, golden, agrees);
    };
    return std::vector<RankResult>{step(0, 0, 4, 4, true),  step(0, 1, 4, 4, true),
                                   step(1, 0, 5, 5, false), step(1, 1, 5, 5, false),
                                   step(2, 0, 6, 7, false), step(2, 1, 8, 7, false)};
  };
  const std::optional<Drift> drift = FindDrift(run("a", false));
  ASSERT_TRUE(drift.has_value());
  EXPECT_EQ(DescribeDrift(*drift),
            "after step 1 the ranks of the target no longer have the same weights, those of the "
            "golden have: gradients or weights were not exchanged between the ranks, or one rank "
            "changed its own; the first is "
            "`fc.weight`");
  EXPECT_EQ(drift->ranks, (std::vector<int32_t>{0, 1}));
  EXPECT_FALSE(FindDrift(run("b", true))->in_target);
  // Both runs lose them at the same place, as with a sharded weight.
  EXPECT_FALSE(
      FindDrift(std::vector<RankResult>{Step("c", 0, 0, 4, 4, true), Step("c", 0, 1, 4, 4, true),
                                        Step("c", 1, 0, 6, 5, false), Step("c", 1, 1, 7, 8, false)})
          .has_value());
}

// The last step has no weights.json behind it: the optimizer's results tell.
TEST_F(StepsTest, RanksDriftApartBehindTheLastStep) {
  std::vector<RankResult> results = {Step("a", 0, 0, 4, 4, false), Step("a", 0, 1, 4, 4, false)};
  for (size_t rank : {0, 1})
    results[rank].weights.end = {{.name = "fc.weight",
                                  .norm = {5.0 + static_cast<double>(rank), 5},
                                  .max = {1, 1},
                                  .min = {0, 0}}};
  const std::optional<Drift> drift = FindDrift(results);
  ASSERT_TRUE(drift.has_value());
  EXPECT_TRUE(drift->in_target);
  EXPECT_EQ(drift->after_step, 0);
}

// Of several steps the one just before is compared, and what a later step shows is not named again.
TEST_F(StepsTest, TheStepJustBeforeCounts) {
  std::vector<RankResult> results = {Step("a", 0, -1, 4, 4, true), Step("a", 1, -1, 5, 5, true),
                                     Step("a", 2, -1, 7, 6, false), Step("a", 3, -1, 9, 7, false)};
  NameWrongUpdates(results);
  EXPECT_EQ(results[1].wrong_update_after, -1);
  EXPECT_EQ(results[2].wrong_update_after, 1);
  EXPECT_EQ(results[3].wrong_update_after, -1);
}

TEST_F(StepsTest, DamagedFilesAreLeftOut) {
  std::vector<RankResult> results = {Step("a", 0, -1, 4, 4, true), Step("a", 1, -1, 6, 5, false)};
  folder_.Write(Place("a", true, 0, -1) + "/weights.json", "{\"fc.weight\": 3, nonsense");
  NameWrongUpdates(results);
  EXPECT_EQ(results[1].wrong_update_after, -1);
}

}  // namespace
}  // namespace msprobe::compare
