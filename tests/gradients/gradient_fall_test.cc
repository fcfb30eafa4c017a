#include "engine/gradients/gradient_fall.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace msprobe::gradients {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Rows of similarities in per cent; -1: not compared.
SimilarityTable Table(const std::vector<std::pair<std::string, std::vector<int64_t>>>& rows) {
  std::vector<int64_t> steps;
  for (size_t i = 0; i < rows[0].second.size(); ++i) steps.push_back(10 + static_cast<int64_t>(i));
  SimilarityTable table(steps);
  for (const auto& [name, cells] : rows) {
    const size_t row = table.Row(name);
    for (size_t i = 0; i < cells.size(); ++i)
      if (cells[i] >= 0) table.At(row, i) = {cells[i], 100};
  }
  return table;
}

TEST(FirstFall, NothingFallsWithinTheRule) {
  EXPECT_FALSE(FirstFall(Table({{"a", {97, 94, 91, 99}}, {"b", {100, 100, 98, 98}}}), {}));
  EXPECT_FALSE(FirstFall(SimilarityTable({}), {}));
}

// Rows with norms: 100 elements, all of whose directions differ.
SimilarityTable Sized(const std::vector<std::pair<std::string, double>>& rows) {
  SimilarityTable table({0});
  for (const auto& [name, norm] : rows)
    table.At(table.Row(name), 0) = {
        .same = 0, .count = 100, .target_norm = norm, .golden_norm = norm};
  return table;
}

TEST(FirstFall, AGradientThatIsZeroByMathematics) {
  // A hundred-millionth of the weight's: what rounding left. The next bias is small, and real.
  const SimilarityTable table = Sized({{"conv.weight", 2}, {"conv.bias", 2e-8}});
  EXPECT_EQ(FirstFall(table, {})->parameter, "conv.weight");
  EXPECT_THAT(OnlyRounding(table, {}), ElementsAre("conv.bias"));
  EXPECT_EQ(FirstFall(table, {.rounding = 0})->others.size(), 1u);
  SimilarityTable right = Sized({{"conv.weight", 2}, {"conv.bias", 2e-8}});
  right.At(0, 0).same = 100;
  EXPECT_FALSE(FirstFall(right, {}));
  EXPECT_EQ(FirstFall(right, {.lowest_first = 1, .largest_drop = 0, .rounding = 0})->parameter,
            "conv.bias");
}

TEST(FirstFall, TheKeysOfAJoinedBias) {
  SimilarityTable table = Sized({{"a.in_proj_weight", 2}, {"a.in_proj_bias", 0.5}});
  table.At(0, 0).same = 100;
  Similarity& bias = table.At(1, 0);
  bias.same = 80, bias.changed_parts = 20;
  EXPECT_FALSE(FirstFall(table, {}));
  EXPECT_THAT(OnlyRounding(table, {}), ElementsAre("a.in_proj_bias"));
  bias.changed_parts = 10;  // and ten queries
  EXPECT_EQ(FirstFall(table, {})->parameter, "a.in_proj_bias");
  bias.changed_parts = 20, bias.target_norm = 0.51;  // the keys are no rounding
  EXPECT_EQ(FirstFall(table, {})->parameter, "a.in_proj_bias");
}

TEST(FirstFall, ASmallGradientOfAModuleOfItsOwnFalls) {
  EXPECT_EQ(FirstFall(Sized({{"a.weight", 2e-4}, {"b.weight", 1}}), {})->others.size(), 1u);
  EXPECT_THAT(OnlyRounding(Sized({{"a.weight", 2e-4}, {"a.bias", 1e-6}}), {}), ElementsAre());
}

// Below the rounding of what follows it: real after a factor of 1e-6, chance in front of a norm
// whose result is averaged.
TEST(FirstFall, ASmallGradientIsUnknown) {
  const auto table = [](double size, double golden_size, int64_t same) {
    SimilarityTable result = Sized({{"a.weight", size}, {"a.bias", size}, {"b.weight", 1}});
    for (const size_t row : {0, 1}) {
      result.At(row, 0).same = same;
      result.At(row, 0).golden_norm = golden_size;
    }
    result.At(2, 0).same = 100;
    return result;
  };
  EXPECT_FALSE(FirstFall(table(2e-8, 2.1e-8, 50), {}));
  EXPECT_THAT(MayBeRounding(table(2e-8, 2.1e-8, 50), {}), ElementsAre("a.weight", "a.bias"));
  EXPECT_FALSE(FirstFall(table(2e-8, 2.1e-8, 0), {}));
  // Only the signs differ.
  EXPECT_EQ(FirstFall(table(2e-8, 2e-8, 0), {})->parameter, "a.bias");
  EXPECT_THAT(MayBeRounding(table(2e-8, 2e-8, 0), {}), ElementsAre());
  EXPECT_EQ(FirstFall(table(2e-4, 2.1e-4, 50), {})->parameter, "a.bias");
  EXPECT_THAT(MayBeRounding(table(2e-4, 2.1e-4, 50), {}), ElementsAre());
  // Directions that agree are right, however small.
  EXPECT_THAT(MayBeRounding(table(2e-8, 2.1e-8, 99), {}), ElementsAre());
  // A fault elsewhere is named, and what may be rounding is no part of it.
  SimilarityTable fault = table(2e-8, 2.1e-8, 50);
  fault.At(2, 0).same = 60;
  EXPECT_EQ(FirstFall(fault, {})->parameter, "b.weight");
  EXPECT_THAT(FirstFall(fault, {})->others, ElementsAre());
}

// A bias that all outputs share cancels in the softmax after it, and no later module shows its
// terms.
TEST(FirstFall, ASmallGradientIsUnknownWhereverTheLargestIs) {
  SimilarityTable table = Sized({{"a.weight", 1}, {"shift.weight", 2e-8}});
  table.At(0, 0).same = 100, table.At(1, 0).same = 50;
  EXPECT_FALSE(FirstFall(table, {}));
  EXPECT_THAT(MayBeRounding(table, {}), ElementsAre("shift.weight"));
}

// Gradients of a large parameter and of small ones; `turned`: elements of the large one that point
// elsewhere.
SimilarityTable Coarse(double epsilon, int64_t turned, int64_t norm_changed, double bias_size) {
  SimilarityTable table({0});
  const auto add = [&](const char* name, int64_t count, int64_t changed, double size) {
    const double norm = size * std::sqrt(static_cast<double>(count));
    table.At(table.Row(name), 0) = {.same = count - changed,
                                    .count = count,
                                    .target_norm = norm,
                                    .golden_norm = 1.1 * norm,
                                    .epsilon = epsilon};
  };
  add("a.weight", 10000, turned, 1);
  add("a.bias", 32, 16, bias_size);
  add("norm.weight", 32, norm_changed, 1);
  return table;
}

TEST(FirstFall, InBFloat16RoundingIsLarger) {
  const double bfloat16 = 0x1p-7, float32 = 0x1p-23;
  // A bias that is zero by mathematics, and a real one.
  EXPECT_FALSE(FirstFall(Coarse(bfloat16, 0, 0, 4e-3), {}));
  EXPECT_THAT(MayBeRounding(Coarse(bfloat16, 0, 0, 4e-3), {}), ElementsAre("a.bias"));
  EXPECT_EQ(FirstFall(Coarse(float32, 0, 0, 4e-3), {})->parameter, "a.bias");
  EXPECT_EQ(FirstFall(Coarse(bfloat16, 0, 0, 0.5), {})->parameter, "a.bias");
  // One element of 32, where the large parameters show that rounding turns some.
  EXPECT_FALSE(FirstFall(Coarse(bfloat16, 20, 1, 4e-3), {}));
  EXPECT_THAT(MayBeRounding(Coarse(bfloat16, 20, 1, 4e-3), {}),
              ElementsAre("a.bias", "norm.weight"));
  EXPECT_FALSE(FirstFall(Coarse(bfloat16, 0, 1, 4e-3), {})) << "one of 10000 would be no surprise";
  EXPECT_EQ(FirstFall(Coarse(bfloat16, 0, 2, 4e-3), {})->parameter, "norm.weight");
  EXPECT_EQ(FirstFall(Coarse(float32, 20, 1, 4e-3), {})->others.size(), 1u);
  // More elements than rounding turns, however many a fault turns elsewhere.
  EXPECT_EQ(FirstFall(Coarse(bfloat16, 20, 8, 4e-3), {})->parameter, "norm.weight");
  EXPECT_EQ(FirstFall(Coarse(bfloat16, 200, 8, 4e-3), {})->parameter, "norm.weight");
  // One gradient of numbers that bfloat16 can hold says nothing of the pass.
  SimilarityTable table = Coarse(float32, 0, 0, 4e-3);
  table.At(1, 0).epsilon = bfloat16;
  EXPECT_EQ(FirstFall(table, {})->parameter, "a.bias");
}

// A table that was read has no norms, and a gradient without elements or with NaN is not small.
TEST(FirstFall, UnknownSizesAreJudged) {
  const double nan = std::nan("");
  EXPECT_THAT(OnlyRounding(Sized({{"a.weight", nan}, {"a.bias", nan}}), {}), ElementsAre());
  EXPECT_THAT(OnlyRounding(Sized({{"a.weight", 1}, {"a.bias", nan}}), {}), ElementsAre());
  EXPECT_THAT(OnlyRounding(Table({{"a.weight", {50}}, {"a.bias", {50}}}), {}), ElementsAre());
}

TEST(FirstFall, TheFirstStepAndADrop) {
  std::optional<GradientFall> fall = FirstFall(Table({{"a", {96, 50}}, {"b", {98, 98}}}), {});
  ASSERT_TRUE(fall);
  EXPECT_EQ(fall->step, 10);
  EXPECT_FALSE(fall->before);
  fall = FirstFall(Table({{"a", {99, 99, 90}}, {"b", {99, 95, 20}}}), {});
  ASSERT_TRUE(fall);
  EXPECT_EQ(fall->step, 11);
  EXPECT_EQ(fall->parameter, "b");
  EXPECT_EQ(fall->before, 0.99);
  EXPECT_EQ(fall->changed, 5);
}

TEST(FirstFall, AMissingStepIsPassedOver) {
  const std::optional<GradientFall> fall = FirstFall(Table({{"a", {99, -1, 90}}}), {});
  ASSERT_TRUE(fall);
  EXPECT_EQ(fall->step, 12);
  EXPECT_EQ(fall->before, 0.99);
}

TEST(FirstFall, TheBackwardPassRunsFromTheLastParameter) {
  // c is right: the error began at b, although a fell more.
  std::optional<GradientFall> fall =
      FirstFall(Table({{"a", {100, 50}}, {"b", {100, 80}}, {"c", {100, 100}}}), {});
  ASSERT_TRUE(fall);
  EXPECT_EQ(fall->parameter, "b");
  EXPECT_THAT(fall->others, ElementsAre("a"));
  EXPECT_THAT(fall->why.English(), HasSubstr("backward pass was right up to it"));
  // All fall: the one that falls most.
  fall = FirstFall(Table({{"a", {100, 80}}, {"b", {100, 50}}, {"c", {100, 90}}}), {});
  EXPECT_EQ(fall->parameter, "b");
  EXPECT_THAT(fall->others, ElementsAre("a", "c"));
  // Of two that fall as much, the later one.
  fall = FirstFall(Table({{"a", {100, 80}}, {"b", {100, 80}}}), {});
  EXPECT_EQ(fall->parameter, "b");
}

TEST(FirstFall, TheRuleCanBeChanged) {
  const SimilarityTable table = Table({{"a", {90, 85}}});
  EXPECT_FALSE(FirstFall(table, {.lowest_first = 0.9, .largest_drop = 0.1}));
  EXPECT_EQ(FirstFall(table, {.lowest_first = 0.9, .largest_drop = 0.04})->step, 11);
}

}  // namespace
}  // namespace msprobe::gradients
