#include "engine/model/sketch_text.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "engine/base/text.h"

namespace msprobe {
namespace {

using kernels::Sketch;

std::string TextOf(const Sketch& sketch) {
  std::string text;
  AppendSketch(&text, sketch);
  return text;
}

TEST(SketchText, GivesTheSameNumbersBack) {
  Sketch sketch{.rows = {1.5, -0.1}, .wave = {0, 1e-300}, .squares = 1e300};
  EXPECT_EQ(TextOf(sketch).size(), 55u);
  EXPECT_EQ(ParseSketch(TextOf(sketch)), sketch);
  sketch.grid.emplace(-1.0 / 3, 4);
  EXPECT_EQ(TextOf(sketch).size(), 77u);
  EXPECT_EQ(ParseSketch(TextOf(sketch)), sketch);
  // The order of the numbers is part of the format.
  std::string one;
  AppendBase64(&one, 0x3ff8000000000000);
  EXPECT_EQ(TextOf(sketch).substr(0, 11), one);
  EXPECT_EQ(TextOf({.squares = 1.5}).substr(22, 11), one);
  EXPECT_EQ(TextOf({.wave = {1.5, 0}}).substr(33, 11), one);
}

TEST(SketchText, RefusesWhatIsNoSketch) {
  const std::string text = TextOf({.rows = {1, 2}, .wave = {3, 4}, .squares = 5});
  EXPECT_FALSE(ParseSketch(""));
  EXPECT_FALSE(ParseSketch(text.substr(1)));
  EXPECT_FALSE(ParseSketch(text + "A"));
  EXPECT_FALSE(ParseSketch(text + text.substr(0, 11)));  // six numbers
  for (const double number : {std::numeric_limits<double>::infinity(), std::nan("")})
    EXPECT_FALSE(ParseSketch(TextOf({.squares = number})));
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string other = text;
    other[random() % other.size()] = static_cast<char>(random());
    const std::optional<Sketch> parsed = ParseSketch(other);
    if (parsed) {
      EXPECT_EQ(TextOf(*parsed).size(), other.size());
    }
  }
}

}  // namespace
}  // namespace msprobe
