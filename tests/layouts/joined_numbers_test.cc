// Statistics and sketches of joined values, beside those of the whole
// (engine/compare/layouts/joined_numbers.h).
#include "engine/compare/layouts/joined_numbers.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/layouts/rank_dumps.h"

namespace msprobe::compare::layouts {
namespace {

constexpr double kTurned = 0x1p-22;  // rows are summed in float (kernels/sketch.h)

void ExpectSame(const JoinedNumbers& n, const Array& whole) {
  const test::Tensor t = whole.Recorded();
  EXPECT_EQ(n.max, t.max);
  EXPECT_EQ(n.min, t.min);
  EXPECT_NEAR(n.mean, t.mean, 1e-12 * t.norm);
  EXPECT_NEAR(n.norm, t.norm, 1e-12 * t.norm);
  const kernels::Sketch sketch = kernels::ComputeSketch(whole.View()).value();
  const double size = t.norm * std::sqrt(static_cast<double>(whole.x.size()));
  const kernels::Sketch& joined = n.joined.sketch;
  EXPECT_LE(n.joined.rows ? std::abs(joined.rows - sketch.rows) : 0, kTurned * size);
  EXPECT_NEAR(n.joined.squares ? joined.squares : sketch.squares, sketch.squares,
              1e-6 * sketch.squares);
  EXPECT_LE(n.joined.wave ? std::abs(joined.wave - sketch.wave) : 0, kTurned * size);
  EXPECT_LE(joined.grid ? std::abs(*joined.grid - *sketch.grid) : 0, kTurned * size);
}

// Shards of every dimension of tensors of one to four dimensions, cut at any places.
TEST(JoinedNumbers, ShardsAreTheWhole) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    const size_t dimensions = 1 + random() % 4;
    std::vector<int64_t> shape;
    for (size_t d = 0; d < dimensions; ++d) shape.push_back(2 + static_cast<int64_t>(random() % 6));
    const Array whole = Array::Random(shape, random());
    const size_t cut = random() % dimensions;
    std::vector<Array> parts;
    int64_t begin = 0;
    while (begin < shape[cut]) {
      const int64_t end =
          std::min<int64_t>(shape[cut], begin + 1 + static_cast<int64_t>(random() % 3));
      parts.push_back(whole.Part(cut, begin, end));
      if (random() % 4 == 0) parts.push_back(whole.Part(cut, end, end));  // more ranks than rows
      begin = end;
    }
    const std::vector<RankRun> runs = RunsOf(parts);
    ValueLayout layout{.kind = ValueLayout::Kind::kShards, .dimension = static_cast<int32_t>(cut)};
    for (size_t i = 0; i < parts.size(); ++i) layout.places.push_back({static_cast<int32_t>(i)});
    ShapePool shapes;
    const JoinedNumbers n = JoinNumbers(layout, PartsOf(runs), runs, shapes.Of(shape), 1);
    SCOPED_TRACE(whole.Recorded().shape + " along " + std::to_string(cut));
    ASSERT_TRUE(n.known);
    ExpectSame(n, whole);
    // Something tells the order: the wave, or from three dimensions on the grid.
    EXPECT_TRUE(n.joined.wave || n.joined.sketch.grid);
    if (parts.size() < 2 || parts[0].x == parts[1].x || parts[0].x.empty() || parts[1].x.empty())
      continue;
    std::swap(layout.places[0], layout.places[1]);
    const JoinedNumbers other = JoinNumbers(layout, PartsOf(runs), runs, shapes.Of(shape), 1);
    const double wave = std::abs(other.joined.sketch.wave - n.joined.sketch.wave);
    EXPECT_GT(n.joined.wave ? wave : std::abs(*other.joined.sketch.grid - *n.joined.sketch.grid),
              1e-6);
    EXPECT_NE(other.content, n.content);
  }
}

TEST(JoinedNumbers, ASumHasItsMeanAndItsSketch) {
  const Array a = Array::Random({4, 3, 5}, 1), b = Array::Random({4, 3, 5}, 2), sum = a.Plus(b);
  const std::vector<RankRun> runs = RunsOf({a, b});
  const ValueLayout layout{.kind = ValueLayout::Kind::kSum, .places = {{0, 1}}};
  ShapePool shapes;
  const JoinedNumbers n =
      JoinNumbers(layout, PartsOf(runs), runs, shapes.Of(sum.shape), /*factor=*/2);
  EXPECT_TRUE(n.known && n.joined.sum && n.joined.rows && n.joined.wave && !n.joined.squares);
  const kernels::Sketch sketch = kernels::ComputeSketch(sum.Times(0.5F).View()).value();
  EXPECT_LE(std::abs(n.joined.sketch.rows - sketch.rows), 1e-5);
  EXPECT_LE(std::abs(n.joined.sketch.wave - sketch.wave), 1e-5);
  EXPECT_LE(std::abs(*n.joined.sketch.grid - *sketch.grid), 1e-5);
  EXPECT_NEAR(n.mean, sum.Times(0.5F).Recorded().mean, 1e-6);
}

// A mask has extremes, which statistics leave out and count.
TEST(JoinedNumbers, ExtremesAreCounted) {
  std::vector<RankRun> runs;
  for (const int rank : {0, 1}) {
    DumpBuilder b;
    b.Call("Torch.relu.0.forward").Out(test::Numbers(rank, -1e38, -5e37, 2e38).Shape("[2, 2]"));
    if (rank == 1)
      b.dump().rests.push_back({.leaf = 0, .extremes = 3, .max = 1, .min = 0.5, .norm = 2});
    if (rank == 0) b.last().min_value = -3, b.last().mean_value = -1, b.last().norm_value = 4;
    runs.push_back({.rank = rank, .dump = std::make_shared<const Dump>(b.Take())});
  }
  const ValueLayout layout{
      .kind = ValueLayout::Kind::kShards, .dimension = 0, .places = {{0}, {1}}};
  ShapePool shapes;
  const JoinedNumbers n = JoinNumbers(layout, PartsOf(runs), runs, shapes.Of("[4, 2]"), 1);
  EXPECT_EQ(n.rest.extremes, 3);
  EXPECT_EQ(n.rest.max, 1);
  EXPECT_EQ(n.rest.min, -3);
  EXPECT_NEAR(n.rest.norm, std::sqrt(4 * 4 + 2 * 2), 1e-12);
}

// The same elements seen as a vector: what is known of their matrix has no dimension there.
TEST(JoinedNumbers, AReshapedPartHasNoSuchDimension) {
  const Array whole = Array::Random({4, 6}, 1);
  Array a = whole.Part(1, 0, 3), b = whole.Part(1, 3, 6);
  a.shape = b.shape = {12};
  const std::vector<RankRun> runs = RunsOf({a, b});
  const ValueLayout layout{
      .kind = ValueLayout::Kind::kShards, .dimension = 1, .places = {{0}, {1}}};
  ShapePool shapes;
  const JoinedNumbers n = JoinNumbers(layout, PartsOf(runs), runs, shapes.Of("[4, 6]"), 1);
  EXPECT_TRUE(n.known);
  EXPECT_FALSE(n.joined.rows || n.joined.wave || n.joined.sketch.grid);
}

TEST(JoinedNumbers, NaNStays) {
  std::vector<RankRun> runs;
  for (const int rank : {0, 1}) {
    DumpBuilder b;
    const double max = rank == 0 ? test::kNaN : 1;
    b.Call("Torch.relu.0.forward").Out(test::Numbers(max, max, max, max).Shape("[2]"));
    runs.push_back({.rank = rank, .dump = std::make_shared<const Dump>(b.Take())});
  }
  const ValueLayout layout{
      .kind = ValueLayout::Kind::kShards, .dimension = 0, .places = {{0}, {1}}};
  ShapePool shapes;
  const JoinedNumbers n = JoinNumbers(layout, PartsOf(runs), runs, shapes.Of("[4]"), 1);
  EXPECT_TRUE(std::isnan(n.max) && std::isnan(n.min) && std::isnan(n.norm));
}

}  // namespace
}  // namespace msprobe::compare::layouts
