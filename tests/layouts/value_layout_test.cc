// How values lie over ranks (engine/compare/layouts/value_layout.h).
#include "engine/compare/layouts/value_layout.h"

#include <gtest/gtest.h>

#include "tests/layouts/rank_dumps.h"

namespace msprobe::compare::layouts {
namespace {

using Kind = ValueLayout::Kind;
const Array kWhole = Array::Random({4, 6}, 1), kOther = Array::Random({4, 6}, 2);

ValueLayout LayoutOf(const std::vector<Array>& parts, LayoutFacts::Question question = {}) {
  const std::vector<RankRun> runs = RunsOf(parts);
  ShapePool shapes;
  if (question.whole.empty()) question.whole = shapes.Of("[4, 6]");
  return LayoutFacts(runs).Of(PartsOf(runs), question);
}

TEST(ValueLayout, OneContentIsWhole) {
  const ValueLayout layout = LayoutOf({kWhole, kWhole, kWhole});
  EXPECT_EQ(layout.kind, Kind::kWhole);
  EXPECT_EQ(layout.places, (std::vector<std::vector<int32_t>>{{0}}));
}

TEST(ValueLayout, PartsThatFillTheWholeAreShards) {
  ValueLayout layout = LayoutOf({kWhole.Part(1, 0, 2), kWhole.Part(1, 2, 6)});
  EXPECT_EQ(layout.kind, Kind::kShards);
  EXPECT_EQ(layout.dimension, 1);
  // Each shard is on two ranks.
  const Array a = kWhole.Part(0, 0, 2), b = kWhole.Part(0, 2, 4);
  layout = LayoutOf({a, b, a, b});
  EXPECT_EQ(layout.kind, Kind::kShards);
  EXPECT_EQ(layout.dimension, 0);
  EXPECT_EQ(layout.places, (std::vector<std::vector<int32_t>>{{0}, {1}}));
  // Cut along two dimensions: nothing tells which is which.
  layout = LayoutOf({a.Part(1, 0, 3), a.Part(1, 3, 6), b.Part(1, 0, 3), b.Part(1, 3, 6)});
  EXPECT_EQ(layout.kind, Kind::kShards);
  EXPECT_EQ(layout.dimension, -1);
}

TEST(ValueLayout, PartsThatDoNotFillTheWholeAreUnknown) {
  EXPECT_EQ(LayoutOf({kWhole.Part(1, 0, 2), kWhole.Part(1, 2, 4)}).kind, Kind::kUnknown);
  // More contents than there are shards, and nothing adds them up.
  const Array a = kWhole.Part(0, 0, 2), b = kWhole.Part(0, 2, 4), c = kOther.Part(0, 0, 2);
  EXPECT_EQ(LayoutOf({a, b, a, c}).kind, Kind::kUnknown);
}

TEST(ValueLayout, MoreThanTheWholeIsPadded) {
  const Array padded = Array::Random({4, 8}, 3);
  const ValueLayout layout = LayoutOf({padded.Part(1, 0, 4), padded.Part(1, 4, 8)});
  EXPECT_EQ(layout.kind, Kind::kShards);
  EXPECT_EQ(layout.padded, (std::vector<int64_t>{4, 8}));
  // As much as a whole shard more is something else.
  const Array larger = Array::Random({4, 12}, 3);
  EXPECT_EQ(LayoutOf({larger.Part(1, 0, 4), larger.Part(1, 4, 8), larger.Part(1, 8, 12)}).kind,
            Kind::kUnknown);
}

TEST(ValueLayout, OtherElementsOnEachRankAreDivergent) {
  EXPECT_EQ(LayoutOf({kWhole, kOther}).kind, Kind::kDivergent);
  // Its numbers are those of a rank that does not have the golden's.
  const std::vector<RankRun> runs = RunsOf({kWhole});
  const ValueLayout layout = LayoutOf({kWhole, kOther}, {.golden = &runs[0].dump->leaves[0]});
  EXPECT_EQ(layout.places, (std::vector<std::vector<int32_t>>{{1}}));
}

TEST(ValueLayout, AddendsAreSums) {
  EXPECT_EQ(LayoutOf({kWhole, kOther}, {.added = true}).kind, Kind::kSum);
  EXPECT_EQ(LayoutOf({kWhole, kOther}, {.averaged = true}).kind, Kind::kMean);
  // What is equal everywhere is no addend.
  EXPECT_EQ(LayoutOf({kWhole, kWhole}, {.added = true}).kind, Kind::kWhole);
}

TEST(ValueLayout, WhatAnExchangeAddsUpIsASum) {
  std::vector<RankRun> runs;
  for (const int rank : {0, 1}) {
    DumpBuilder b;
    b.Call("Functional.linear.0.forward");
    Out(b, rank == 0 ? kWhole : kOther);
    Reduce(b, "Distributed.all_reduce.0.forward", rank == 0 ? kWhole : kOther, kWhole.Plus(kOther));
    runs.push_back({.rank = rank, .dump = std::make_shared<const Dump>(b.Take())});
  }
  ShapePool shapes;
  const std::vector<ValuePart> parts = PartsOf(runs);
  const ValueLayout layout = LayoutFacts(runs).Of(parts, {.whole = shapes.Of("[4, 6]")});
  EXPECT_EQ(layout.kind, Kind::kSum);
  EXPECT_EQ(Describe(layout, parts, runs), "joined: sum over ranks 0, 1");
}

// The largest of the ranks is no sum.
TEST(ValueLayout, WhatAnExchangeTakesTheLargestOfIsNoSum) {
  std::vector<RankRun> runs;
  for (const int rank : {0, 1}) {
    DumpBuilder b;
    b.Call("Tensor.max.0.forward");
    Out(b, rank == 0 ? kWhole : kOther);
    Reduce(b, "Distributed.all_reduce.0.forward", rank == 0 ? kWhole : kOther, kWhole);
    b.Value("op", "ReduceOp", "ReduceOp.MAX");
    runs.push_back({.rank = rank, .dump = std::make_shared<const Dump>(b.Take())});
  }
  ShapePool shapes;
  EXPECT_EQ(LayoutFacts(runs).Of(PartsOf(runs), {.whole = shapes.Of("[4, 6]")}).kind,
            Kind::kDivergent);
}

TEST(ValueLayout, ADTensorSaysItself) {
  std::vector<RankRun> runs;
  for (const int rank : {0, 1}) {
    DumpBuilder b;
    b.Call("Functional.linear.0.forward");
    Out(b, rank == 0 ? kWhole : kOther);
    b.dump().shards.push_back(
        {.leaf = 0, .mesh = "[0, 1]", .placements = R"([{"Partial": {"reduce_op": "sum"}}])"});
    runs.push_back({.rank = rank, .dump = std::make_shared<const Dump>(b.Take())});
  }
  ShapePool shapes;
  EXPECT_EQ(LayoutFacts(runs).Of(PartsOf(runs), {.whole = shapes.Of("[4, 6]")}).kind, Kind::kSum);
}

TEST(ValueLayout, CopiesOfAnAddendCountOnce) {
  std::vector<RankRun> runs;
  for (const int rank : {0, 1, 2, 3}) {
    DumpBuilder b;
    b.Call("Functional.linear.0.forward");
    Out(b, rank % 2 == 0 ? kWhole : kOther);
    b.dump().shards.push_back({.leaf = 0,
                               .mesh = "[[0, 1], [2, 3]]",
                               .placements = R"([{"Replicate": {}}, {"Partial": {}}])"});
    runs.push_back({.rank = rank, .dump = std::make_shared<const Dump>(b.Take())});
  }
  ShapePool shapes;
  const ValueLayout layout = LayoutFacts(runs).Of(PartsOf(runs), {.whole = shapes.Of("[4, 6]")});
  EXPECT_EQ(layout.places, (std::vector<std::vector<int32_t>>{{0, 1}}));
}

TEST(ValueLayout, ShapesOfADamagedFileAreUnknown) {
  for (const char* const shape : {"[4611686018427387904, 0]", "[4611686018427387904]", "[s0, 4]"}) {
    std::vector<RankRun> runs;
    for (const int rank : {0, 1}) {
      DumpBuilder b;
      b.Call("Torch.f.0.forward").Out(test::Numbers(rank, 0, 0, 1).Shape(shape));
      runs.push_back({.rank = rank, .dump = std::make_shared<const Dump>(b.Take())});
    }
    ShapePool shapes;
    for (const std::string& whole : {std::string("[4, 6]"), std::string(shape)}) {
      const auto kind = LayoutFacts(runs).Of(PartsOf(runs), {.whole = shapes.Of(whole)}).kind;
      EXPECT_EQ(kind, Kind::kUnknown) << shape << " of " << whole;
    }
  }
}

}  // namespace
}  // namespace msprobe::compare::layouts
