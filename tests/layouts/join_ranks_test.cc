// Two ranks that compute what one process computes, compared with it (engine/compare/layouts/join_ranks.h).
#include "engine/compare/layouts/join_ranks.h"

#include <gtest/gtest.h>

#include "engine/compare/layouts/joined_calls.h"
#include "engine/compare/layouts/module_names.h"
#include "engine/compare/report/report_json.h"
#include "tests/layouts/rank_dumps.h"

namespace msprobe::compare::layouts {
namespace {

const Array kX = Array::Random({4, 6}, 1), kHidden = Array::Random({4, 8}, 2),
            kFirst = Array::Random({8, 6}, 3), kSecond = Array::Random({6, 8}, 4),
            kAddend0 = Array::Random({4, 6}, 5), kAddend1 = Array::Random({4, 6}, 6);

Array Relu(Array a) {
  for (float& each : a.x) each = std::max(each, 0.0F);
  return a;
}

// A block of two layers: what a process makes that has these parts of it.
struct Block {
  Array hidden, first, second, made, sum, result;
  float scaled = 1;  // by a call that others do not make
};

DumpBuilder Recorded(const Block& block, bool reduces) {
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").At("train.py", 3, "h = F.linear(x, first)");
  In(b, kX), In(b, block.first), Out(b, block.hidden);
  Array positive = Relu(block.hidden);
  b.Call("Torch.relu.0.forward").At("train.py", 4, "h = torch.relu(h)");
  In(b, block.hidden), Out(b, positive);
  if (block.scaled != 1) {
    const Array more = positive.Times(block.scaled);
    b.Call("Tensor.__mul__.0.forward").At("train.py", 5, "h = h * factor");
    In(b, positive), Out(b, more);
    positive = more;
  }
  b.Call("Functional.linear.1.forward").At("train.py", 6, "y = F.linear(h, second)");
  In(b, positive), In(b, block.second), Out(b, block.made);
  if (reduces) {
    Reduce(b, "Distributed.all_reduce.0.forward", block.made, block.sum);
    b.At("train.py", 7, "all_reduce(y)");
  }
  const Array& taken = reduces ? block.sum : block.made;
  b.Call("Tensor.__add__.0.forward").At("train.py", 8, "return x + y");
  In(b, kX), In(b, taken), Out(b, block.result);
  return b;
}

Dump Golden() {
  const Array sum = kAddend0.Plus(kAddend1);
  return Recorded({kHidden, kFirst, kSecond, sum, sum, kX.Plus(sum)}, /*reduces=*/false).Take();
}

Block OfRank(int rank) {
  const int64_t begin = 4 * rank;
  return {kHidden.Part(1, begin, begin + 4), kFirst.Part(0, begin, begin + 4),
          kSecond.Part(1, begin, begin + 4), rank == 0 ? kAddend0 : kAddend1,
          kAddend0.Plus(kAddend1),           kX.Plus(kAddend0.Plus(kAddend1))};
}

struct Compared {
  Comparison c;
  std::vector<std::string> notes;
  std::string first() const {
    if (c.first.pair < 0) return "";
    const RecordPair& pair = c.pairs[c.first.pair];
    return std::string(pair.target >= 0 ? c.target.records[pair.target].name.view()
                                        : c.golden.records[pair.golden].name.view());
  }
};

Compared CompareRanks(const Block& a, const Block& b, bool reduces = true) {
  std::deque<RankDump> ranks;
  ranks.push_back({0, Recorded(a, reduces).Take()});
  ranks.push_back({1, Recorded(b, reduces).Take()});
  Dump golden = Golden();
  Result<JoinedRun> joined = JoinRanks(std::move(ranks), golden, "runs/target");
  EXPECT_TRUE(joined.ok()) << joined.status().ToString();
  CompareOptions options;
  options.exactness = Exactness::kTolerant;
  return {test::MustCompare(std::move(joined->dump), std::move(golden), options),
          std::move(joined->notes)};
}

TEST(JoinRanks, ARightLayoutIsCalm) {
  const Compared compared = CompareRanks(OfRank(0), OfRank(1));
  EXPECT_EQ(compared.first(), "");
  EXPECT_EQ(compared.notes[0],
            "2 ranks were joined to one run: 5 values are whole on each rank that has them, 6 "
            "are joined of shards, 2 are sums over ranks");
  for (const JoinedLeaf& leaf : compared.c.target.joined) EXPECT_EQ(leaf.parts.size(), 2U);
}

TEST(JoinRanks, AMissingReductionIsNamedWithWhatIsMissing) {
  Block a = OfRank(0), b = OfRank(1);
  a.result = kX.Plus(kAddend0);
  b.result = kX.Plus(kAddend1);
  const Compared compared = CompareRanks(a, b, /*reduces=*/false);
  EXPECT_EQ(compared.first(), "Functional.linear.1.forward");
  EXPECT_NE(compared.c.first.why.find("each rank has other elements, which add up to the golden's; "
                                      "those of rank 0 are compared"),
            std::string::npos)
      << compared.c.first.why;
}

TEST(JoinRanks, ShardsInAnotherOrderAreWrong) {
  Block a = OfRank(0), b = OfRank(1);
  std::swap(a.hidden, b.hidden);
  b.made = kAddend1.Times(2);
  a.sum = b.sum = kAddend0.Plus(b.made);
  a.result = b.result = kX.Plus(a.sum);
  EXPECT_EQ(CompareRanks(a, b).first(), "Functional.linear.0.forward");
}

TEST(JoinRanks, ACallThatOneRankMakesIsNamedWithTheRank) {
  Block b = OfRank(1);
  b.scaled = 1.5F;
  b.made = kAddend1.Times(1.25F);
  std::deque<RankDump> ranks;
  ranks.push_back({0, Recorded(OfRank(0), true).Take()});
  ranks.push_back({1, Recorded(b, true).Take()});
  Dump golden = Golden();
  Result<JoinedRun> joined = JoinRanks(std::move(ranks), golden, "runs/target");
  ASSERT_TRUE(joined.ok());
  const auto some = joined->dump.ranks_of_records;
  ASSERT_EQ(some.size(), 1U);
  EXPECT_EQ(some[0].second, (std::vector<int32_t>{1}));
  // It takes what all ranks have, and passes on what the other one has.
  const Record& mul = joined->dump.records[some[0].first];
  EXPECT_EQ(mul.name, "Tensor.__mul__.0.forward");
  for (const Leaf& leaf : joined->dump.LeavesOf(mul)) {
    const JoinedLeaf* value =
        joined->dump.JoinedOf(static_cast<int32_t>(&leaf - joined->dump.leaves.data()));
    ASSERT_NE(value, nullptr);
    EXPECT_EQ(value->parts.size(), 2U);
  }
}

TEST(JoinRanks, TheReportListsTheRanks) {
  Block a = OfRank(0), b = OfRank(1);
  a.result = kX.Plus(kAddend0);
  b.result = kX.Plus(kAddend1);
  Compared compared = CompareRanks(a, b, /*reduces=*/false);
  compared.c.first.ranks = {1, 2};
  EXPECT_NE(JsonReport(compared.c).find("\"ranks\": [\n      1,\n      2\n    ]"),
            std::string::npos);
}

TEST(JoinRanks, OneRankOfSeveralIsNoGolden) {
  std::deque<RankDump> ranks;
  ranks.push_back({0, Recorded(OfRank(0), true).Take()});
  ranks.push_back({1, Recorded(OfRank(1), true).Take()});
  Dump golden = Golden();
  golden.provenance.emplace_back(
      "parallel", R"({"groups": [{"ranks": [0, 1], "backend": "gloo", "name": "0"}]})");
  const Result<JoinedRun> joined = JoinRanks(std::move(ranks), golden, "runs/target");
  ASSERT_FALSE(joined.ok());
  EXPECT_NE(joined.status().ToString().find("one rank of 2"), std::string::npos);
}

TEST(JoinRanks, AModuleWithoutAClassIsNoReasonToStop) {
  std::deque<RankDump> ranks;
  for (const int rank : {0, 1}) {
    DumpBuilder b = Recorded(OfRank(rank), true);
    b.InModule("Module");
    ranks.push_back({rank, b.Take()});
  }
  EXPECT_TRUE(JoinRanks(std::move(ranks), Golden(), "runs/target").ok());
}

TEST(JoinRanks, DumpsWithoutNumbersAreRefused) {
  std::deque<RankDump> ranks;
  for (const int rank : {0, 1})
    ranks.push_back(
        {rank, DumpBuilder().Call("Torch.f.0.forward").Out(test::Tensor().NoStats()).Take()});
  EXPECT_FALSE(JoinRanks(std::move(ranks), Golden(), "runs/target").ok());
}

StepWeight Weight(std::string name, std::string fingerprint) {
  return {.name = std::move(name), .fingerprint = std::move(fingerprint)};
}

TEST(ModuleNames, AStageCountsItsLayersFromZero) {
  const std::vector<StepWeight> golden = {
      Weight("layers.0.fc.weight", "a"), Weight("layers.0.fc.bias", "0"),
      Weight("layers.1.fc.weight", "b"), Weight("layers.1.fc.bias", "0")};
  const ModuleNames names({Weight("layers.0.fc.weight", "b"), Weight("layers.0.fc.bias", "0")},
                          golden);
  EXPECT_EQ(names.Of("layers.0.fc"), "layers.1.fc");
  EXPECT_EQ(names.Of("layers.0.other.deep"), "layers.1.other.deep");
  EXPECT_EQ(names.Of("layers.01"), "layers.01");
}

TEST(ModuleNames, WrappersAndStagesStandInFront) {
  const std::vector<StepWeight> golden = {Weight("layers.0.fc.weight", "a")};
  const ModuleNames names({Weight("stage.layers.0.fc.weight", "a")}, golden);
  EXPECT_EQ(names.Of("module.stage.layers.0.fc"), "layers.0.fc");
  EXPECT_EQ(names.Of("stage"), "");
}

// Zeros, and what the golden has twice, say nothing; nor does a content that both have under one name.
TEST(ModuleNames, WhatIsNotOneContentSaysNothing) {
  const std::vector<StepWeight> golden = {Weight("a.bias", "0"), Weight("b.bias", "0"),
                                          Weight("c.weight", "x")};
  const ModuleNames names({Weight("d.bias", "0"), Weight("c.weight", "x")}, golden);
  EXPECT_TRUE(names.renamed().empty());
}

TEST(JoinCalls, WhatIsSentStandsBeforeWhatIsReceived) {
  std::vector<RankRun> runs;
  for (const int rank : {0, 1}) {
    DumpBuilder b;
    b.dump().folder = "runs/rank" + std::to_string(rank);
    // Rank 1 lists its own calls first.
    for (int i = 0; rank == 0 && i < 3; ++i) {
      b.Call("Torch.relu." + std::to_string(i) + ".forward").At("train.py", 1, "relu");
      Out(b, kX);
    }
    b.Call(rank == 0 ? "Distributed.send.0.forward" : "Distributed.recv.0.forward");
    In(b, kX);
    b.dump().records.back().group = 0;
    b.dump().groups.push_back(
        {.ranks = "[0, 1]",
         .place = rank,
         .role = rank == 0 ? ProcessGroup::Role::kSource : ProcessGroup::Role::kReceiver,
         .peer = 1 - rank});
    runs.push_back({.rank = rank, .dump = std::make_shared<const Dump>(b.Take())});
  }
  const std::vector<JoinedCall> calls = JoinCalls(runs);
  ASSERT_EQ(calls.size(), 5U);
  EXPECT_EQ(calls[3].of[0].run, 0);
  EXPECT_EQ(calls[4].of[0].run, 1);
}

}  // namespace
}  // namespace msprobe::compare::layouts
