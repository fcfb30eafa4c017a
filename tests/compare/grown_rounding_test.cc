// Rounding that grows from call to call, and from step to step, is no one's fault.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>

#include "engine/base/file.h"
#include "engine/compare/judge/update_agreement.h"
#include "engine/compare/ranks/rank_result.h"
#include "engine/compare/ranks/wrong_updates.h"
#include "engine/compare/report/report_ranks.h"
#include "tests/base/temporary_folder.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::First;
using test::MustCompare;
using test::Numbers;
using test::Scaled;
using test::Tensor;
using test::Value;
using ::testing::HasSubstr;

// A chain of calls whose values are off by these relative errors; the first is that of the input.
Dump GrowingChain(const std::vector<double>& errors, const std::string& api = "Functional.f") {
  DumpBuilder b;
  for (size_t i = 0; i + 1 < errors.size(); ++i) {
    const int at = static_cast<int>(i);
    b.Call(api + std::to_string(i) + ".0.forward").In(Value(at, errors[i]));
    b.Out(Value(at + 1, errors[i + 1]));
  }
  return b.Take();
}

Comparison Grown(const std::vector<double>& errors, const std::string& api = "Functional.f") {
  return MustCompare(GrowingChain(errors, api),
                     GrowingChain(std::vector<double>(errors.size(), 0), api));
}

TEST(GrownRounding, GrowthFromCallToCallIsNoise) {
  const Comparison c = Grown({1e-6, 5e-6, 1.5e-5, 6e-5, 2e-4});
  EXPECT_EQ(First(c), "none");
  EXPECT_EQ(Summarize(c).verdict, RunVerdict::kNoise);
  EXPECT_EQ(c.measures.back().reason, Reason::kEnlarged);
}

TEST(GrownRounding, NothingGrowsFromEqualBits) {
  EXPECT_EQ(First(Grown({0, 2e-5, 4e-5})), "Functional.f0.0.forward");
}

TEST(GrownRounding, ABackwardCallUsesWhatItsForwardCallUsed) {
  const auto build = [](double error) {
    DumpBuilder b;
    b.Call("Functional.f.0.forward").In(Value(1, error)).Out(Value(2, 5 * error));
    b.Call("Functional.f.0.backward").In(Value(3)).Out(Value(4, 20 * error));
    return b.Take();
  };
  EXPECT_EQ(First(MustCompare(build(1e-6), build(0))), "none");
}

// `moved`: how far the weight has moved before this step.
Dump StepOfGrowth(double rounding, double moved) {
  DumpBuilder b;
  const Tensor weight = Scaled(Numbers(1, -1, 0.1, 8), moved);
  b.Call("Functional.linear.0.forward").In(Value(1)).In(weight).Out(Value(3, rounding + moved));
  b.Parent("Module.fc.Linear.forward.0");
  b.Call("Module.fc.Linear.forward.0").In(Value(1)).Out(Value(3, rounding + moved));
  b.Parameter("weight", weight);
  return b.Take();
}

std::vector<RankResult> Steps(double rounding, double target_moved) {
  std::vector<RankResult> steps = {
      SummarizeRank(MustCompare(StepOfGrowth(rounding, 0), StepOfGrowth(0, 0)), 0, -1),
      SummarizeRank(MustCompare(StepOfGrowth(rounding, target_moved), StepOfGrowth(0, 0.01)), 1,
                    -1)};
  ForgiveCarriedRounding(steps);
  return steps;
}

TEST(CarriedRounding, WeightsThatMoveAlikeAreNoOnesFault) {
  const std::vector<RankResult> steps = Steps(1e-6, 0.0101);
  EXPECT_EQ(steps[1].rounding_of_step, 0);
  EXPECT_EQ(VerdictOver(steps), RunVerdict::kNoise);
  EXPECT_THAT(RanksReport(steps, {.target = "t", .golden = "g"}, {.width = 200, .whole = true}),
              HasSubstr("step 1 begins with weights that the rounding of step 0 moved apart"));
}

TEST(CarriedRounding, AnotherUpdateIsADifference) {
  EXPECT_EQ(Steps(1e-6, 0.02)[1].rounding_of_step, -1);
  EXPECT_EQ(VerdictOver(Steps(1e-6, 0.02)), RunVerdict::kDiffers);
  // From a step that is equal in all bits come equal weights.
  EXPECT_EQ(VerdictOver(Steps(0, 0.0101)), RunVerdict::kDiffers);
}

TEST(UpdateAgreementTest, TheMedianDecides) {
  UpdateAgreement updates;
  const auto add = [&](BothSides before, BothSides after) {
    updates.Add({.before = before, .after = after});
  };
  EXPECT_FALSE(updates.agrees());
  add({1, 1}, {1, 1});  // did not move
  EXPECT_FALSE(updates.agrees());
  add({1, 1}, {1.1, 1.101});
  add({2, 2}, {2.1, 2.099});
  add({3, 3}, {3.1, 2.9});  // its gradient is rounding
  EXPECT_TRUE(updates.agrees());
  add({3, 3}, {3.1, 3.2});
  add({3, 3}, {3.2, 3.4});
  EXPECT_FALSE(updates.agrees());
}

// Adam moves nearly each element by its rate: weight decay that is added to the gradients shows in
// the norms, where all elements count.
TEST(UpdateAgreementTest, EachStatisticHasItsMedian) {
  const auto agrees = [](double norm) {
    UpdateAgreement updates;
    for (uint32_t weight = 0; weight < 4; ++weight) {
      updates.Add({.before = {5, 5}, .after = {5.1 + norm, 5.1}, .weight = weight});
      for (const uint8_t extreme : {1, 2}) {
        updates.Add(
            {.before = {1, 1}, .after = {1.01, 1.01}, .weight = weight, .statistic = extreme});
      }
    }
    return updates.agrees();
  };
  EXPECT_TRUE(agrees(0.01));
  EXPECT_FALSE(agrees(0.1));
}

// Weights of float32 whose movement in the target is `apart` of (golden's movement, weight,
// movement before) other than the golden's, and a rounding of the gradient.
UpdateAgreement Updates(double rate, double decay, double momentum, double rounding) {
  UpdateAgreement updates;
  for (uint32_t i = 0; i < 12; ++i) {
    const double was = 0.1 + 0.07 * i * (i % 2 == 0 ? 1 : -1), moved = 1e-3 * std::sin(1 + 3.0 * i),
                 earlier = 1e-3 * std::cos(2 + 5.0 * i),
                 target = moved * (1 + rounding * std::sin(7.0 * i)) + rate * moved + decay * was +
                          momentum * earlier;
    updates.Add({.before = {was, was},
                 .after = {was + target, was + moved},
                 .earlier = {was - earlier, was - earlier},
                 .epsilon = 0x1p-23,
                 .weight = i / 3});
  }
  return updates;
}

TEST(UpdateAgreementTest, OneFactorForAllWeightsIsNoRounding) {
  using Kind = UpdateFault::Kind;
  const auto fault = [](double rate, double decay, double momentum) {
    const UpdateAgreement updates = Updates(rate, decay, momentum, 1e-4);
    EXPECT_FALSE(updates.agrees());
    return updates.fault();
  };
  EXPECT_EQ(fault(0.1, 0, 0).kind, Kind::kRate);
  EXPECT_NEAR(fault(0.1, 0, 0).factor, 1.1, 1e-3);
  EXPECT_EQ(fault(0, -9e-5, 0).kind, Kind::kDecay);
  EXPECT_NEAR(fault(0, -9e-5, 0).factor, -9e-5, 1e-6);
  EXPECT_EQ(fault(0, 0, 0.05).kind, Kind::kMomentum);
  EXPECT_NEAR(fault(0, 0, 0.05).factor, 0.05, 1e-3);
  EXPECT_TRUE(Updates(0, 0, 0, 1e-4).agrees());
  // Gradients that are rounding move each weight in its own way.
  EXPECT_TRUE(Updates(0, 0, 0, 0.2).agrees());
  EXPECT_EQ(Updates(0, 0, 0, 2).fault().kind, Kind::kNone);
  // Below a few roundings of the weights nothing is known.
  EXPECT_TRUE(Updates(1e-4, 0, 0, 1e-5).agrees());
}

// The norm of a sum is no sum of norms: of an update that is 1.1 times as long it moves by another
// factor.
TEST(UpdateAgreementTest, TheFactorOfElementsCountsWhereNormsHaveNone) {
  const auto fault = [](double of_largest) {
    UpdateAgreement updates;
    for (uint32_t i = 0; i < 6; ++i) {
      const double was = 0.3 + 0.1 * i, moved = 2e-3 * (i % 2 == 0 ? 1 : -1);
      const double largest = of_largest + 0.15 * i * (of_largest - 1.1);
      updates.Add({.before = {was, was},
                   .after = {was + (1.02 + 0.05 * i) * moved, was + moved},
                   .epsilon = 0x1p-23,
                   .weight = i});
      updates.Add({.before = {was, was},
                   .after = {was + largest * moved, was + moved},
                   .epsilon = 0x1p-23,
                   .weight = i,
                   .statistic = 1});
      updates.Add({.before = {-was, -was},
                   .after = {-was + 1.1 * moved, -was + moved},
                   .epsilon = 0x1p-23,
                   .weight = i,
                   .statistic = 2});
    }
    return updates.fault();
  };
  EXPECT_EQ(fault(1.1).kind, UpdateFault::Kind::kRate);
  EXPECT_NEAR(fault(1.1).factor, 1.1, 1e-3);
  EXPECT_EQ(fault(1.6).kind, UpdateFault::Kind::kNone);
}

// Step 1 begins with weights that moved 1.1 times as far; step 0 agrees within rounding.
TEST(CarriedRounding, AnotherRateOfAllWeightsIsNamed) {
  const auto step = [](double rounding, double rate, double moved) {
    DumpBuilder b;
    b.Call("Functional.linear.0.forward").In(Value(1)).Out(Value(3, rounding + rate * moved));
    b.Parent("Module.fc.Linear.forward.0");
    for (int i = 0; i < 4; ++i) {
      const std::string name = "Module.fc" + std::to_string(i) + ".Linear.forward.0";
      b.Call(name.c_str()).In(Value(1)).Out(Value(3, rounding + rate * moved));
      b.Parameter("weight", Scaled(Numbers(1 + i, -1 - i, 0.1, 8 + i), rate * moved));
    }
    return b.Take();
  };
  const auto steps = [&](double rate) {
    std::vector<RankResult> results = {
        SummarizeRank(MustCompare(step(1e-6, 1, 0), step(0, 1, 0)), 0, -1),
        SummarizeRank(MustCompare(step(1e-6, rate, 0.01), step(0, 1, 0.01)), 1, -1)};
    ForgiveCarriedRounding(results);
    NameWrongUpdates(results);
    return results;
  };
  const std::vector<RankResult> wrong = steps(1.1);
  EXPECT_EQ(wrong[1].wrong_update_after, 0);
  EXPECT_THAT(wrong[1].first.why.English(),
              HasSubstr("moves the weights 1.1 times as far as the golden"));
  EXPECT_EQ(steps(1.0001)[1].wrong_update_after, -1);
}

}  // namespace
}  // namespace msprobe::compare
