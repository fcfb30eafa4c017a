#include "engine/anomaly/first_anomaly.h"

#include <gmock/gmock.h>

#include "engine/anomaly/anomaly_report.h"
#include "tests/base/english.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::anomaly {
namespace {

using compare::test::DumpBuilder;
using compare::test::kInf;
using compare::test::kNaN;
using compare::test::Numbers;
using compare::test::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Tensor Finite() { return Numbers(1, -1, 0, 2); }
Tensor NaNs() { return Numbers(kNaN, kNaN, kNaN, kNaN); }
Tensor Inf() { return Numbers(kInf, 1, kInf, kInf); }
Tensor Mask() { return Numbers(0, -kInf, -kInf, kInf); }

// The name of the first anomaly in a dump of one process.
std::string FirstOf(DumpBuilder& b) { return FindRankAnomaly(b.Take(), -1).name; }

DumpBuilder& Call(DumpBuilder& b, std::string_view name, const Tensor& in, const Tensor& out) {
  return b.Call(name).In(in).Out(out);
}

// Dumps of some ranks, whose exchanges are read from the arguments as in dumps of older tools.
class Ranks {
 public:
  explicit Ranks(int count) : builders_(count) {}
  DumpBuilder& operator[](int rank) { return builders_[rank]; }
  void AllReduce(int number, const std::vector<Tensor>& in, const Tensor& out) {
    for (size_t r = 0; r < builders_.size(); ++r)
      Call(builders_[r], "Distributed.all_reduce." + std::to_string(number) + ".forward", in[r],
           out);
  }
  FirstAnomalies Find() {
    std::vector<RankAnomaly> found;
    for (size_t r = 0; r < builders_.size(); ++r) {
      Dump dump = builders_[r].Take();
      dump.folder = "step0/rank" + std::to_string(r);
      found.push_back(FindRankAnomaly(dump, static_cast<int32_t>(r)));
    }
    return FindFirstAnomalies(std::move(found));
  }

 private:
  std::vector<DumpBuilder> builders_;
};

// "rank 1 Torch.log.0.forward" of each call of the answer.
std::vector<std::string> Answer(const FirstAnomalies& found) {
  std::vector<std::string> calls;
  for (const size_t i : found.answer)
    calls.push_back(found.RankOf(i).label.English() + " " + found.RankOf(i).name);
  return calls;
}

TEST(RankAnomaly, TheFirstCallWithFiniteInputsAndABadOutput) {
  DumpBuilder b;
  Call(b, "Torch.add.0.forward", Finite(), Finite());
  Call(b, "Torch.exp.0.forward", Finite(), Inf());
  Call(b, "Functional.linear.0.forward", Inf(), NaNs());
  Call(b, "Torch.log.0.forward", Finite(), NaNs());
  EXPECT_EQ(FirstOf(b), "Torch.exp.0.forward");
}

// sqrt at 0: its gradient is infinite, and the line is that of the forward call.
TEST(RankAnomaly, ABackwardCallHasTheLineOfItsForwardCall) {
  DumpBuilder b;
  b.Call("Tensor.sqrt.0.forward").In(Finite()).Out(Finite()).At("train.py", 7, "y = x.sqrt()");
  b.Call("Tensor.sqrt.1.forward").In(Finite()).Out(Finite()).At("train.py", 8, "z = y.sqrt()");
  b.Call("Tensor.sqrt.1.backward").In(Finite()).Out(Inf());
  const RankAnomaly found = FindRankAnomaly(b.Take(), -1);
  EXPECT_EQ(found.name, "Tensor.sqrt.1.backward");
  EXPECT_EQ(found.source_line, "train.py:8 in forward: z = y.sqrt()");
  EXPECT_EQ(found.stack.size(), 1u);
}

TEST(RankAnomaly, ABadOutputOfABadInputIsNone) {
  DumpBuilder b;
  Call(b, "Torch.exp.0.forward", Finite(), Finite());
  b.Call("Functional.linear.0.forward").In(Finite()).Kwarg("bias", NaNs()).Out(NaNs());
  const RankAnomaly found = FindRankAnomaly(b.Take(), -1);
  EXPECT_EQ(found.name, "Functional.linear.0.forward");
  EXPECT_TRUE(found.trace.from_outside);
}

TEST(RankAnomaly, ElementsOfNestedListsCount) {
  DumpBuilder in_list;
  in_list.Call("Torch.cat.0.forward").Kwarg("tensors.1.deep", NaNs()).Out(NaNs());
  EXPECT_TRUE(FindRankAnomaly(in_list.Take(), -1).trace.from_outside);
  DumpBuilder out_list;
  out_list.Call("Torch.split.0.forward").In(Finite()).OutAt("0.1.b", NaNs());
  const RankAnomaly found = FindRankAnomaly(out_list.Take(), -1);
  ASSERT_EQ(found.values.size(), 1u);
  EXPECT_EQ(found.values[0].name, "output.0.1.b");
  EXPECT_FALSE(found.trace.from_outside);
}

TEST(RankAnomaly, AMaskIsNoAnomalyButNaNMadeOfItIs) {
  DumpBuilder b;
  b.Call("Torch.full.0.forward").Value("fill_value", "float", "-inf");
  b.last().max = b.last().min = "-inf";
  b.last().max_value = b.last().min_value = -kInf;
  b.Out(Mask());
  Call(b, "Torch.add.0.forward", Mask(), Mask());
  Call(b, "Functional.softmax.0.forward", Mask(), Finite());
  EXPECT_EQ(FirstOf(b), "");

  DumpBuilder rows_of_masks;
  Call(rows_of_masks, "Functional.softmax.0.forward", Mask(), NaNs());
  EXPECT_EQ(FirstOf(rows_of_masks), "Functional.softmax.0.forward");
}

TEST(RankAnomaly, MemoryThatNobodyWroteIsIgnored) {
  for (const std::string_view api : {"Torch.empty", "Torch.empty_like", "Tensor.new_empty",
                                     "Torch.fill", "Torch.fill_", "Tensor.masked_fill_"}) {
    DumpBuilder b;
    Call(b, std::string(api) + ".0.forward", Finite(), NaNs());
    // The former content of a tensor that is overwritten is no input.
    b.Call("Tensor.copy_.0.forward").In(NaNs()).In(Finite()).Out(Finite());
    Call(b, "Torch.log.0.forward", Finite(), NaNs());
    EXPECT_EQ(FirstOf(b), "Torch.log.0.forward") << api;
  }
  DumpBuilder b;
  b.Call("Tensor.copy_.0.forward").In(NaNs()).In(Finite()).Out(NaNs());
  EXPECT_FALSE(FindRankAnomaly(b.Take(), -1).trace.from_outside);
}

TEST(RankAnomaly, ACallInsideGoesBeforeItsModule) {
  DumpBuilder b;
  Call(b, "Module.net.Net.forward.0", Finite(), NaNs());
  Call(b, "Module.net.block.Block.forward.0", Finite(), NaNs()).Parent("Module.net.Net.forward.0");
  Call(b, "Torch.other.0.forward", Finite(), NaNs());  // not inside
  Call(b, "Torch.log.0.forward", Finite(), NaNs()).Parent("Module.net.block.Block.forward.0");
  const RankAnomaly found = FindRankAnomaly(b.Take(), -1);
  EXPECT_EQ(found.name, "Torch.log.0.forward");
  EXPECT_THAT(found.parents,
              ElementsAre("Module.net.Net.forward.0", "Module.net.block.Block.forward.0"));
}

TEST(RankAnomaly, AModuleWhoseWeightIsNaNMakesNone) {
  const auto inner = [](DumpBuilder& b) {
    b.Call("Functional.linear.0.forward").In(Finite()).In(NaNs()).Out(NaNs());
    b.Parent("Module.net.fc.Linear.forward.0");
    Call(b, "Module.net.fc.Linear.forward.0", Finite(), NaNs()).Parent("Module.net.Net.forward.0");
  };
  for (const bool children_first : {true, false}) {
    DumpBuilder b;
    if (children_first) inner(b);
    Call(b, "Module.net.Net.forward.0", Finite(), NaNs());
    if (!children_first) inner(b);
    const RankAnomaly found = FindRankAnomaly(b.Take(), -1);
    EXPECT_EQ(found.name, "Functional.linear.0.forward") << children_first;
    EXPECT_TRUE(found.trace.from_outside);
  }
  // What the module itself made is an anomaly, also when another module got NaN.
  DumpBuilder other;
  inner(other);
  Call(other, "Module.head.Head.forward.0", Finite(), NaNs());
  EXPECT_EQ(FirstOf(other), "Module.head.Head.forward.0");
}

TEST(RankAnomaly, ABackwardPassUsesWhatTheForwardPassGot) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(Finite()).In(NaNs()).Out(NaNs());
  Call(b, "Functional.linear.0.backward", Finite(), NaNs());
  EXPECT_EQ(FirstOf(b), "Functional.linear.0.forward");
  DumpBuilder other;
  other.Call("Functional.linear.0.forward").In(Finite()).In(NaNs()).Out(NaNs());
  Call(other, "Functional.linear.1.backward", Finite(), NaNs());
  EXPECT_EQ(FirstOf(other), "Functional.linear.1.backward");
}

TEST(RankAnomaly, ModulesThatAreTheirOwnParentsEnd) {
  DumpBuilder b;
  Call(b, "Module.a.A.forward.0", Finite(), NaNs()).Parent("Module.b.B.forward.0");
  Call(b, "Module.b.B.forward.0", Finite(), NaNs()).Parent("Module.a.A.forward.0");
  EXPECT_EQ(FirstOf(b), "Module.b.B.forward.0");
}

TEST(RankAnomaly, GradientsOfParametersOnlyPassOn) {
  DumpBuilder b;
  b.Call("Module.fc.Linear.parameters_grad.0").Grad("weight", NaNs());
  const RankAnomaly found = FindRankAnomaly(b.Take(), -1);
  EXPECT_TRUE(found.trace.from_outside);
}

TEST(ValueKinds, FiniteExtremesWinOverANormThatOverflowed) {
  DumpBuilder b;
  Call(b, "Torch.mul.0.forward", Finite(), Numbers(3e4, -1, kInf, kInf));
  EXPECT_EQ(FirstOf(b), "");
  DumpBuilder only_norm;
  Call(only_norm, "Torch.mul.0.forward", Finite(), Numbers(0, 0, 0, kNaN));
  for (TextRef* text : {&only_norm.last().max, &only_norm.last().min, &only_norm.last().mean})
    *text = "";
  only_norm.last().max_value = only_norm.last().min_value = only_norm.last().mean_value = kNaN;
  EXPECT_EQ(FirstOf(only_norm), "Torch.mul.0.forward");
}

TEST(ValueKinds, OneNaNIsToldFromAll) {
  const auto text = [](const Tensor& out, ElementCounts counts) {
    DumpBuilder b;
    Call(b, "Torch.f.0.forward", Finite(), out);
    b.last().counts = &counts;
    return DescribeNonfinite(b.last()).English();
  };
  EXPECT_EQ(text(NaNs(), {1, 0, 0, 0}), "1 of 6 elements is NaN");
  EXPECT_EQ(text(NaNs(), {6, 0, 0, 0}), "all 6 elements are NaN");
  EXPECT_EQ(text(NaNs(), {2, 1, 2, 0}), "2 of 6 elements are NaN; 3 of 6 elements are Inf or -Inf");
  EXPECT_EQ(text(NaNs(), kUnknownCounts), "some of 6 elements are NaN");
  EXPECT_EQ(text(Inf(), kUnknownCounts), "some of 6 elements are Inf");
  EXPECT_EQ(text(Numbers(-kInf, -kInf, -kInf, kInf), kUnknownCounts), "all 6 elements are -Inf");
}

TEST(FirstAnomalies, BeforeTheFirstExchangeEachRankIsNamed) {
  Ranks ranks(3);
  Call(ranks[1], "Torch.log.0.forward", Finite(), NaNs());
  Call(ranks[2], "Torch.exp.0.forward", Finite(), Inf());
  ranks.AllReduce(0, {Finite(), NaNs(), Inf()}, NaNs());
  const FirstAnomalies found = ranks.Find();
  EXPECT_EQ(found.phase, Phase::kBeforeFirst);
  EXPECT_THAT(Answer(found),
              ElementsAre("rank 1 Torch.log.0.forward", "rank 2 Torch.exp.0.forward"));
  EXPECT_THAT(EnglishOf(DescribeTravel(found)),
              ElementsAre("ranks 1, 2 sent NaN to rank 0 in Distributed.all_reduce.0.forward"));
}

TEST(FirstAnomalies, BetweenExchangesTheOneWithTheFewestBefore) {
  Ranks ranks(2);
  ranks.AllReduce(0, {Finite(), Finite()}, Finite());
  Call(ranks[1], "Torch.log.0.forward", Finite(), NaNs());
  ranks.AllReduce(1, {Finite(), NaNs()}, NaNs());
  ranks.AllReduce(2, {Finite(), Finite()}, Finite());
  Call(ranks[0], "Torch.exp.0.forward", Finite(), Inf());
  const FirstAnomalies found = ranks.Find();
  EXPECT_EQ(found.phase, Phase::kBetween);
  EXPECT_THAT(Answer(found), ElementsAre("rank 1 Torch.log.0.forward"));
  EXPECT_THAT(DescribeWhy(found, 0).English(),
              HasSubstr("no NaN or infinity came with the exchange before"));
}

TEST(FirstAnomalies, OfTwoBetweenTheSameExchangesTheOneNearerToTheFormer) {
  Ranks ranks(2);
  ranks.AllReduce(0, {Finite(), Finite()}, Finite());
  Call(ranks[0], "Torch.add.0.forward", Finite(), Finite());
  Call(ranks[0], "Torch.exp.0.forward", Finite(), Inf());
  Call(ranks[1], "Torch.log.0.forward", Finite(), NaNs());
  ranks.AllReduce(1, {Inf(), NaNs()}, NaNs());
  EXPECT_THAT(Answer(ranks.Find()), ElementsAre("rank 1 Torch.log.0.forward"));
}

TEST(FirstAnomalies, BehindTheLastExchangeEachRankIsNamed) {
  Ranks ranks(2);
  ranks.AllReduce(0, {Finite(), Finite()}, Finite());
  for (int r = 0; r < 2; ++r) Call(ranks[r], "Torch.log.0.forward", Finite(), NaNs());
  const FirstAnomalies found = ranks.Find();
  EXPECT_EQ(found.phase, Phase::kAfterLast);
  EXPECT_EQ(found.answer.size(), 2u);
}

TEST(FirstAnomalies, AReductionThatOverflowsIsThePlace) {
  Ranks ranks(2);
  ranks.AllReduce(0, {Finite(), Finite()}, Inf());
  const FirstAnomalies found = ranks.Find();
  EXPECT_THAT(Answer(found), ElementsAre("rank 0 Distributed.all_reduce.0.forward"));
  EXPECT_THAT(DescribeWhy(found, 0).English(), HasSubstr("every rank gave finite numbers"));
}

TEST(FirstAnomalies, CallsArePairedByTheirNumbersNotByTheirOrderInTheFile) {
  // Rank 0's first exchange is recorded last, because its result was waited for last.
  Ranks ranks(2);
  Call(ranks[0], "Torch.log.0.forward", Finite(), NaNs());
  Call(ranks[0], "Distributed.all_reduce.1.forward", NaNs(), NaNs());
  Call(ranks[0], "Distributed.all_reduce.0.forward", Finite(), Finite());
  Call(ranks[1], "Distributed.all_reduce.0.forward", Finite(), Finite());
  Call(ranks[1], "Distributed.all_reduce.1.forward", Finite(), NaNs());
  const FirstAnomalies found = ranks.Find();
  EXPECT_THAT(Answer(found), ElementsAre("rank 0 Torch.log.0.forward"));
  EXPECT_THAT(EnglishOf(DescribeTravel(found)),
              ElementsAre("rank 0 sent NaN to rank 1 in Distributed.all_reduce.1.forward"));
}

// Which argument names the peer differs between releases of PyTorch.
TEST(FirstAnomalies, PeersComeFromEveryKeyword) {
  for (const auto& [to, from] : {std::pair{"dst", "src"}, std::pair{"group_dst", "group_src"},
                                 std::pair{"dst_group", "src_group"}}) {
    Ranks ranks(3);
    Call(ranks[2], "Torch.log.0.forward", Finite(), NaNs());
    Call(ranks[2], "Distributed.send.0.forward", NaNs(), NaNs()).Value(to, "int", "1");
    Call(ranks[1], "Distributed.recv.0.forward", NaNs(), NaNs()).Value(from, "int", "2");
    const FirstAnomalies found = ranks.Find();
    EXPECT_THAT(Answer(found), ElementsAre("rank 2 Torch.log.0.forward")) << to;
    EXPECT_THAT(EnglishOf(DescribeTravel(found)),
                ElementsAre("rank 2 sent NaN to rank 1 in Distributed.send.0.forward"))
        << to;
  }
}

TEST(FirstAnomalies, APlaceInAGroupIsARankOfIt) {
  Ranks ranks(3);
  const auto exchange = [&](int rank, std::string_view name, const char* peer, const char* place) {
    Call(ranks[rank], name, NaNs(), NaNs()).Value(peer, "int", place);
    ranks[rank].Value("group", "torch.ProcessGroup", "[1, 2]");
    ranks[rank].last().type = "torch.ProcessGroup";
  };
  Call(ranks[2], "Torch.log.0.forward", Finite(), NaNs());
  exchange(2, "Distributed.send.0.forward", "group_dst", "0");
  exchange(1, "Distributed.recv.0.forward", "group_src", "1");
  EXPECT_THAT(EnglishOf(DescribeTravel(ranks.Find())),
              ElementsAre("rank 2 sent NaN to rank 1 in Distributed.send.0.forward"));
}

TEST(FirstAnomalies, ABroadcastGoesFromItsSource) {
  Ranks ranks(2);
  Call(ranks[1], "Torch.log.0.forward", Finite(), NaNs());
  // Rank 0's own content is overwritten: it gave nothing.
  for (int r = 0; r < 2; ++r)
    Call(ranks[r], "Distributed.broadcast.0.forward", NaNs(), NaNs()).Value("src", "int", "1");
  const FirstAnomalies found = ranks.Find();
  EXPECT_THAT(Answer(found), ElementsAre("rank 1 Torch.log.0.forward"));
  EXPECT_THAT(found.found.origins[0].reached, ElementsAre(0));
}

TEST(FirstAnomalies, ARankWithoutADumpIsNamed) {
  Ranks ranks(1);
  Call(ranks[0], "Distributed.recv.0.forward", Finite(), NaNs()).Value("src", "int", "3");
  const FirstAnomalies found = ranks.Find();
  ASSERT_EQ(found.answer.size(), 1u);
  EXPECT_THAT(DescribeWhy(found, 0).English(), HasSubstr("what rank 3 gave is not recorded"));
}

TEST(FirstAnomalies, NothingIsFoundWhereNothingIs) {
  Ranks ranks(2);
  ranks.AllReduce(0, {Finite(), Finite()}, Finite());
  const FirstAnomalies found = ranks.Find();
  EXPECT_THAT(found.answer, IsEmpty());
  EXPECT_EQ(AnomalyText(found, {.entries = 2}),
            "msprobe overflow_check: no NaN or infinity begins in what was read (2 ranks, 2 "
            "entries)\n");
}

TEST(FirstAnomalies, StepsAreCounted) {
  Ranks none(1);
  Call(none[0], "Torch.log.0.forward", Finite(), Finite());
  EXPECT_EQ(
      AnomalyText(none.Find(), {.steps = 6, .all_steps = 6, .entries = 6}),
      "msprobe overflow_check: no NaN or infinity begins in what was read (6 steps, 1 rank, 6 "
      "entries)\n");
  Ranks one(1);
  Call(one[0], "Torch.log.0.forward", Finite(), NaNs());
  EXPECT_THAT(AnomalyText(one.Find(), {.steps = 3, .all_steps = 6, .entries = 3}),
              HasSubstr("3 of 6 steps, up to the first that has one; 1 rank, 3 entries\n"));
  EXPECT_THAT(AnomalyJson(one.Find(), {.steps = 3, .all_steps = 6}, {}, ""),
              HasSubstr("\"steps\": 3"));
}

}  // namespace
}  // namespace msprobe::anomaly
