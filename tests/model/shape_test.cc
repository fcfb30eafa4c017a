#include "engine/model/shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace msprobe {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Shape, OfEachSpelling) {
  ShapePool pool;
  EXPECT_THAT(pool.Of("[2, 3]").extents(), ElementsAre(2, 3));
  EXPECT_THAT(pool.Of("(2, 3)").extents(), ElementsAre(2, 3));
  EXPECT_THAT(pool.Of("(3,)").extents(), ElementsAre(3));
  EXPECT_THAT(pool.Of("[2,3,4]").extents(), ElementsAre(2, 3, 4));
  for (const std::string_view text : {"[]", "()"}) {
    EXPECT_TRUE(pool.Of(text).is_scalar()) << text;
    EXPECT_EQ(pool.Of(text).elements(), 1) << text;
  }
  EXPECT_EQ(pool.Of("(3,)"), "(3,)");
  const std::vector<int64_t> extents = {7, 1};
  EXPECT_EQ(pool.Of(extents), "[7, 1]");
  EXPECT_EQ(pool.Of(extents), pool.Of("[7, 1]"));
}

TEST(Shape, TextThatIsNoShapeIsUnknownAndIsKept) {
  ShapePool pool;
  for (const std::string text :
       {"N/A", "[s0, 4]", "[-1, 4]", "[2.0, 3]", "[2, 3", "2, 3", "[2, 3)", "[2, [3]]", "[2,, 3]",
        "[2, 3,]", "[,]", "[,2]", "x[2, 3]", "[2, 3]x", "[99999999999999999999]", "[2 3]", "[ ]"}) {
    const Shape shape = pool.Of(text);
    EXPECT_FALSE(shape.known()) << text;
    EXPECT_FALSE(shape.is_scalar()) << text;
    EXPECT_EQ(shape.elements(), -1) << text;
    EXPECT_THAT(shape.extents(), IsEmpty()) << text;
    EXPECT_EQ(shape, text);
  }
  EXPECT_FALSE(Shape().known());
  EXPECT_EQ(Shape().elements(), -1);
  EXPECT_TRUE(Shape().empty());
  EXPECT_TRUE(pool.Of("").empty());
}

TEST(Shape, Elements) {
  ShapePool pool;
  EXPECT_EQ(pool.Of("[2, 3]").elements(), 6);
  EXPECT_EQ(pool.Of("[2, 0, 3]").elements(), 0);
  EXPECT_EQ(pool.Of("[4294967296, 4294967296]").elements(), -1) << "more than int64_t holds";
  EXPECT_EQ(pool.Of("[4294967296, 4294967296, 0]").elements(), 0);
  EXPECT_EQ(pool.Of("[9223372036854775807]").elements(), INT64_MAX);
}

TEST(Shape, OfTooManyDimensionsKeepsOnlyItsText) {
  ShapePool pool;
  std::string text = "[1";
  for (int i = 1; i < 100000; ++i) text += ", 1";
  text += "]";
  const Shape shape = pool.Of(text);
  EXPECT_FALSE(shape.known());
  EXPECT_EQ(shape, text);
  EXPECT_LT(pool.bytes(), 2 * text.size());
}

TEST(Shape, WithoutOnes) {
  ShapePool pool;
  const auto same = [&](const char* a, const char* b) {
    return pool.Of(a).SameWithoutOnes(pool.Of(b));
  };
  EXPECT_TRUE(same("[2, 1, 3]", "[2, 3]"));
  EXPECT_TRUE(same("[1, 1]", "[]"));
  EXPECT_TRUE(same("(2, 3)", "[2, 3]"));
  EXPECT_TRUE(same("[s0, 1, 4]", "[s0, 4]"));
  EXPECT_FALSE(same("[2, 3]", "[3, 2]"));
  EXPECT_FALSE(same("[6]", "[2, 3]"));
  EXPECT_FALSE(same("[0]", "[]"));
  EXPECT_FALSE(same("[s0, 4]", "[s1, 4]"));
  EXPECT_FALSE(same("N/A", "[]"));
  EXPECT_EQ(pool.Of("[2, 3]"), pool.Of("[2, 3]"));
  EXPECT_FALSE(pool.Of("[2, 3]") == pool.Of("[2, 1, 3]"));
  EXPECT_FALSE(pool.Of("(2, 3)") == pool.Of("[2, 3]")) << "equal is spelled alike";

  const std::vector<int64_t> a = {1, 2, 1, 3}, b = {2, 3, 1}, c = {2}, ones = {1, 1};
  EXPECT_TRUE(SameWithoutOnes(a, b));
  EXPECT_FALSE(SameWithoutOnes(a, c));
  EXPECT_TRUE(SameWithoutOnes(ones, {}));
}

TEST(Shape, OutlivesThePoolThatMadeItInThePoolThatTookIt) {
  ShapePool all;
  Shape shape;
  {
    ShapePool piece;
    shape = piece.Of("[11, 12, 13]");
    const uint64_t bytes = piece.bytes();
    EXPECT_GT(bytes, 0u);
    EXPECT_EQ(piece.Of("[11, 12, 13]"), shape);
    EXPECT_EQ(piece.bytes(), bytes) << "kept once";
    all.Take(&piece);
    EXPECT_EQ(piece.bytes(), 0u);
    EXPECT_EQ(all.bytes(), bytes);
    piece.Of("[1]");  // the pool may still be used
  }
  ShapePool moved = std::move(all);
  EXPECT_EQ(shape, "[11, 12, 13]");
  EXPECT_EQ(shape.elements(), 11 * 12 * 13);
}

}  // namespace
}  // namespace msprobe
