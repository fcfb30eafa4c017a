#include "engine/checkpoint/compare_checkpoints.h"

#include <gmock/gmock.h>

#include <cmath>

#include "engine/base/messages/message.h"
#include "engine/compare/judge/judge.h"
#include "tests/base/temporary_folder.h"
#include "tests/checkpoint/values.h"
#include "tests/checkpoint/written_tensors.h"

namespace msprobe::checkpoint {
namespace {

using compare::CompareOptions;
using compare::Comparison;
using compare::Match;
using compare::Measure;
using compare::Reason;
using compare::ReasonText;
using compare::RowVerdict;
using test::kCheckpoints;
using test::MustOpen;
using test::Safetensors;
using test::WrittenTensor;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Property;

using Tensors = std::vector<WrittenTensor>;

class CompareCheckpointsTest : public testing::Test {
 protected:
  Comparison Compare(const Tensors& target, const Tensors& golden,
                     const CompareOptions& options = {}, const ParameterMapping& names = {}) {
    folder_.Write("t.safetensors", Safetensors(target));
    folder_.Write("g.safetensors", Safetensors(golden));
    return CompareCheckpoints(MustOpen(folder_.path() + "/t.safetensors"),
                              MustOpen(folder_.path() + "/g.safetensors"), options, names);
  }
  TemporaryFolder folder_;
};

const Measure& Only(const Comparison& c) {
  EXPECT_EQ(c.measures.size(), 1u);
  return c.measures.at(0);
}

TEST_F(CompareCheckpointsTest, EqualOnesAreEqual) {
  const Tensors both = {{"a", {2}, {1, 2}}, {"b", {1}, {3}}};
  const Comparison c = Compare(both, both);
  EXPECT_TRUE(IsCheckpointComparison(c));
  ASSERT_EQ(c.rows.size(), 2u);
  for (const Measure& m : c.measures) EXPECT_EQ(m.verdict, RowVerdict::kEqual);
  EXPECT_EQ(c.first.row, -1) << "no parameter is the worst";
  EXPECT_THAT(CheckpointReport(c),
              AllOf(HasSubstr("verdict equal: 2 equal\n"), Not(HasSubstr("worst parameter"))));
}

TEST_F(CompareCheckpointsTest, TheWorstParameterAndItsElementAreNamed) {
  const Comparison c =
      Compare({{"a", {2}, {1, 2.5}}, {"b", {2, 2}, {1, 2, 3, 400}}, {"c", {1}, {5}}},
              {{"a", {2}, {1, 2}}, {"b", {2, 2}, {1, 2, 3, 4}}, {"c", {1}, {5}}});
  ASSERT_GE(c.first.row, 0);
  EXPECT_EQ(c.golden.leaves[c.rows[c.first.row].golden].name, "b");
  EXPECT_THAT(c.first.why.English(), AllOf(HasSubstr("400 against 4 at [1, 1]; relative L2 "),
                                           HasSubstr("1 of 4 elements differ")));
  EXPECT_THAT(CheckpointReport(c),
              AllOf(HasSubstr("worst parameter: b (torch.float32, [2, 2])"),
                    HasSubstr("also differ, the worst first (1)\n  a: 2.5 against 2 at [1]")));
}

TEST_F(CompareCheckpointsTest, NaNOnOneSideIsWorseThanAnyNumber) {
  const Comparison c = Compare({{"a", {2}, {1, 1e30f}}, {"b", {3}, {1, NAN, INFINITY}}},
                               {{"a", {2}, {1, 2}}, {"b", {3}, {1, 2, -INFINITY}}});
  ASSERT_GE(c.first.row, 0);
  EXPECT_EQ(c.golden.leaves[c.rows[c.first.row].golden].name, "b");
  EXPECT_EQ(c.measures[c.first.row].reason, Reason::kNonFinite);
  EXPECT_THAT(c.first.why.English(),
              HasSubstr("2 of 3 elements NaN or infinite on one side, or of another "
                        "sign"));
}

TEST_F(CompareCheckpointsTest, NaNOnBothSidesIsNoPass) {
  const Tensors both = {{"a", {3}, {1, NAN, -INFINITY}}};
  const Comparison c = Compare(both, both);
  EXPECT_EQ(Only(c).verdict, RowVerdict::kUnknown);
  EXPECT_EQ(Only(c).reason, Reason::kBothNaN);
  EXPECT_THAT(SimilarityJson(c), AllOf(HasSubstr("\"l2\": NaN"), HasSubstr("\"cos\": NaN")));
}

TEST_F(CompareCheckpointsTest, OtherShapesDifferAndAreNotMeasured) {
  const Comparison c =
      Compare({{"a", {2, 3}, {1, 2, 3, 4, 5, 6}}}, {{"a", {3, 2}, {1, 2, 3, 4, 5, 6}}});
  EXPECT_EQ(Only(c).verdict, RowVerdict::kDiffers);
  EXPECT_EQ(Only(c).reason, Reason::kShapeDiffers);
  EXPECT_EQ(Only(c).tensor, -1);
  EXPECT_EQ(c.first.why, "shape [2, 3] against [3, 2]; the same elements under another shape");
  EXPECT_EQ(
      SimilarityJson(c),
      "{\n    \"a\": {\n        \"l2\": null,\n        \"cos\": null,\n        \"numel\": 6,\n"
      "        \"shape\": [[2, 3], [3, 2]]\n    }\n}\n");
}

TEST_F(CompareCheckpointsTest, ATensorOfOneSideHasARowOfItsOwn) {
  const Comparison c =
      Compare({{"new", {1}, {1}}, {"a", {1}, {1}}}, {{"a", {1}, {1}}, {"old", {1}, {1}}});
  ASSERT_EQ(c.rows.size(), 3u);
  EXPECT_EQ(c.rows[0].match, Match::kExact);
  EXPECT_EQ(c.rows[1].match, Match::kGoldenOnly);
  EXPECT_EQ(c.rows[2].match, Match::kTargetOnly);
  for (const size_t row : {1, 2}) {
    EXPECT_EQ(c.measures[row].verdict, RowVerdict::kUnknown) << "nobody's pass";
    EXPECT_EQ(c.measures[row].reason, Reason::kNoPartner);
  }
  EXPECT_THAT(CheckpointReport(c),
              HasSubstr("verdict differs: 1 equal, 1 only in the target, 1 only in the golden\n"));
  EXPECT_THAT(CheckpointReport(c), AllOf(HasSubstr("only in the target (1)\n  new\n"),
                                         HasSubstr("only in the golden (1)\n  old\n")));
  EXPECT_THAT(SimilarityJson(c), Not(HasSubstr("old")));
}

TEST_F(CompareCheckpointsTest, ALongListIsCutAndCounted) {
  Tensors target;
  for (int i = 0; i < 8; ++i) target.push_back({fmt::format("new{}", i), {1}, {1}});
  target.push_back({"a", {1}, {1}});
  EXPECT_THAT(
      CheckpointReport(Compare(target, {{"a", {1}, {1}}})),
      AllOf(HasSubstr("only in the target (8)\n  new0\n"), HasSubstr("  new4\n  and 3 more\n")));
}

TEST_F(CompareCheckpointsTest, ATensorThatCannotBeReadCostsItsOwnRow) {
  std::string bytes = ReadWhole(kCheckpoints + "/nested.pt");
  const float row[] = {0, 1, 2, 3, 4, 5};
  bytes[bytes.find(std::string_view(reinterpret_cast<const char*>(row), sizeof(row))) + 6] ^= 1;
  const std::string damaged = folder_.Write("t.pt", bytes);
  const Comparison c = CompareCheckpoints(MustOpen(damaged), MustOpen(kCheckpoints + "/nested.pt"));
  ASSERT_EQ(c.rows.size(), 6u);
  EXPECT_EQ(c.measures[0].verdict, RowVerdict::kUnknown);
  EXPECT_EQ(c.measures[0].reason, Reason::kBadFile);
  EXPECT_EQ(c.measures[1].reason, Reason::kBothNaN);
  for (size_t i = 2; i < c.rows.size(); ++i)
    EXPECT_EQ(c.measures[i].verdict, RowVerdict::kEqual) << i;
  EXPECT_THAT(CheckpointReport(c),
              AllOf(HasSubstr("could not be compared (2)\n  model.layers.0.weight: "),
                    HasSubstr(std::string("  model.layers.0.bias: ") +
                              ReasonText(Reason::kBothNaN).English())));
  EXPECT_THAT(SimilarityJson(c), HasSubstr("\"l2\": \"error\""));
}

TEST_F(CompareCheckpointsTest, WhatMemoryHasNoRoomForIsNotRead) {
  const Tensors both = {{"large", {8}, std::vector<float>(8, 1)}, {"small", {1}, {1}}};
  const Comparison c = Compare(both, both, {.max_pair_bytes = 16, .mapped_counts = true});
  EXPECT_EQ(c.measures[0].verdict, RowVerdict::kUnknown);
  EXPECT_EQ(c.measures[1].verdict, RowVerdict::kEqual);
  ASSERT_EQ(c.notes.size(), 2u);
  EXPECT_THAT(c.notes[0].English(), HasSubstr("comparing these tensors needs "));
  const Comparison mapped = Compare(both, both, {.max_pair_bytes = 16});
  EXPECT_EQ(mapped.measures[0].verdict, RowVerdict::kEqual) << "mapped bytes need no room";
}

TEST_F(CompareCheckpointsTest, AMappedNameIsPairedAndShown) {
  const Comparison c = Compare({{"x", {1}, {1}}}, {{"y", {1}, {2}}}, {}, {.names = {{"x", "y"}}});
  ASSERT_EQ(c.rows.size(), 1u);
  EXPECT_EQ(c.rows[0].match, Match::kAligned);
  EXPECT_EQ(c.target.leaves[c.rows[0].target].name, "x");
  EXPECT_EQ(Only(c).verdict, RowVerdict::kDiffers);
}

TEST_F(CompareCheckpointsTest, AToleranceTellsNoiseFromADifference) {
  const Tensors target = {{"a", {1}, {1.00001f}}}, golden = {{"a", {1}, {1}}};
  EXPECT_EQ(Only(Compare(target, golden, {.tolerance = 1})).verdict, RowVerdict::kDiffers);
  EXPECT_EQ(Only(Compare(target, golden, {.tolerance = 1e6})).verdict, RowVerdict::kNoise);
}

TEST_F(CompareCheckpointsTest, OneShardedOtherwiseIsTheSameModel) {
  const Comparison c = CompareCheckpoints(MustOpen(kCheckpoints + "/sharded"),
                                          MustOpen(kCheckpoints + "/nested.pt"));
  // Three of the six tensors are in the shards; one of these three has NaN on both sides.
  std::vector<RowVerdict> verdicts;
  for (const Measure& m : c.measures) {
    if (m.reason != Reason::kNoPartner) verdicts.push_back(m.verdict);
  }
  EXPECT_THAT(verdicts, ElementsAre(RowVerdict::kEqual, RowVerdict::kUnknown, RowVerdict::kEqual));
  EXPECT_THAT(c.not_observed, Contains("names of the golden are compared without model. in front"));
}

TEST_F(CompareCheckpointsTest, RanksThatDisagreeAreSaid) {
  const Checkpoint ranks = MustOpen(kCheckpoints + "/megatron_ranks");
  const Comparison c = CompareCheckpoints(ranks, ranks);
  EXPECT_THAT(c.not_observed,
              Contains(Property(&Message::English,
                                HasSubstr("1 parameter of the target is not the same"))));
  EXPECT_THAT(c.not_observed,
              Contains(Property(&Message::English,
                                HasSubstr("1 parameter of the golden is not the same"))));
  EXPECT_THAT(SimilarityJson(c), Not(HasSubstr("optimizer"))) << "parameters of the model only";
}

TEST_F(CompareCheckpointsTest, FilesThatWerePassedOverAreSaid) {
  folder_.Write("model/model-1.safetensors", Safetensors({{"a", {1}, {1}}}));
  folder_.Write("model/model-2.safetensors", "PK\x03\x04 cut off");
  const Checkpoint c = MustOpen(folder_.path() + "/model");
  EXPECT_THAT(CompareCheckpoints(c, c).not_observed,
              Contains(Property(&Message::English, AllOf(HasSubstr("passed over: "),
                                                         HasSubstr("model-2.safetensors")))));
}

}  // namespace
}  // namespace msprobe::checkpoint
