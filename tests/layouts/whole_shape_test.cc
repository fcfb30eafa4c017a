// What the ranks of two sides tell of a whole that neither has
// (engine/compare/layouts/whole_shape.h).
#include "engine/compare/layouts/whole_shape.h"

#include <gtest/gtest.h>

#include "tests/layouts/rank_dumps.h"

namespace msprobe::compare::layouts {
namespace {

const OtherLayout kOneWay = {.one_way = true}, kSeveralWays = {},
                  kGradient = {.one_way = true, .gradient = true};

// Shape and number of the parts of one side, which all differ.
struct Ranks {
  std::vector<int64_t> shape;
  int64_t contents = 1, units = 0;
};

WholeShape Whole(const Ranks& target, const Ranks& golden, const OtherLayout& layout) {
  ShapePool shapes;
  const auto held = [&](const Ranks& side) {
    return HeldParts{
        .shape = shapes.Of(side.shape), .contents = side.contents, .units = side.units};
  };
  return WholeOf(held(target), held(golden), layout);
}

std::vector<int64_t> Extents(std::initializer_list<int64_t> extents) { return extents; }

TEST(WholeShape, ShapesThatDifferAsTheGroupsDoAreShards) {
  const WholeShape whole = Whole({{4, 8}, 2}, {{4, 4}, 4}, kOneWay);
  EXPECT_EQ(whole.extents, Extents({4, 16}));
  EXPECT_TRUE(whole.ordered);
  // Ranks that are divided in several ways may divide another dimension, too.
  EXPECT_FALSE(Whole({{4, 8}, 2}, {{4, 4}, 4}, kSeveralWays).ordered);
}

TEST(WholeShape, PartsOfTheBatchAndPartsOfTheColumnsFillOneWhole) {
  EXPECT_EQ(Whole({{2, 16}, 4}, {{8, 4}, 4}, kOneWay).extents, Extents({8, 16}));
}

TEST(WholeShape, OneContentOnBothSidesIsTheWhole) {
  EXPECT_EQ(Whole({{4, 8}, 1}, {{4, 8}, 1}, kOneWay).extents, Extents({4, 8}));
  EXPECT_EQ(Whole({{4, 8}, 1}, {{2, 8}, 2}, kOneWay).extents, Extents({4, 8}));
  EXPECT_FALSE(Whole({{4, 8}, 1}, {{2, 8}, 1}, kOneWay).known);  // another value
}

TEST(WholeShape, AddendsHaveTheShapeOfTheirSum) {
  EXPECT_EQ(Whole({{4, 8}, 2, 1}, {{4, 8}, 4, 1}, kOneWay).extents, Extents({4, 8}));
  EXPECT_EQ(Whole({{4, 8}, 4, 0}, {{2, 8}, 2, 0}, kOneWay).extents, Extents({4, 8}));
}

TEST(WholeShape, AsManyPartsOfOneShapeAreTheSameShardsOrAddends) {
  const WholeShape forward = Whole({{4, 8}, 2}, {{4, 8}, 2}, kOneWay);
  EXPECT_FALSE(forward.ordered);
  EXPECT_FALSE(forward.summed);
  EXPECT_EQ(forward.extents, Extents({8, 8}));
  EXPECT_TRUE(Whole({{4, 8}, 2}, {{4, 8}, 2}, kGradient).summed);
}

TEST(WholeShape, PaddedBuffersOfOtherLengthsAreNotOneWhole) {
  EXPECT_FALSE(Whole({{3232}, 2, 1}, {{3360}, 4, 1}, kOneWay).known);
}

TEST(WholeShape, ShapesOfADamagedFileAreNotMultiplied) {
  constexpr int64_t kLarge = int64_t{1} << 40;
  EXPECT_FALSE(Whole({{kLarge, kLarge}, 2}, {{kLarge, 3}, 4}, kOneWay).known);
  EXPECT_FALSE(Whole({{0, 4}, 2}, {{4, 0}, 2}, kOneWay).known);
}

}  // namespace
}  // namespace msprobe::compare::layouts
