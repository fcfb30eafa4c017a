// Two ranks that compute what one process computes, compared with it
// (engine/compare/layouts/join_ranks.h).
#include "engine/compare/layouts/join_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "engine/base/messages/message.h"
#include "engine/compare/layouts/join_both.h"
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
  std::vector<Message> notes;
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
  EXPECT_NE(compared.c.first.why.English().find(
                "each rank has other elements, which add up to the golden's; "
                "those of rank 0 are compared"),
            std::string::npos)
      << compared.c.first.why.English();
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

// Of a half of the weight of queries nothing but its shape says that it is the weight of keys.
TEST(JoinRanks, ModulesAreKnownByTheirNamesNotByShapesOfParts) {
  const Array weights[] = {Array::Random({8, 6}, 11), Array::Random({4, 6}, 12)};
  const Array results[] = {Array::Random({4, 8}, 13), Array::Random({4, 4}, 14)};
  const auto run = [&](int ranks, int rank) {
    DumpBuilder b;
    for (const int i : {0, 1}) {
      const std::string name = i == 0 ? "wq" : "wk", line = "q, k = (w(x) for w in (wq, wk))";
      const std::string module = "Module.a." + name + ".Linear.forward.0";
      const int64_t rows = weights[i].shape[0] / ranks;
      const Array weight = weights[i].Part(0, rank * rows, (rank + 1) * rows),
                  result = results[i].Part(1, rank * rows, (rank + 1) * rows);
      b.Call("Functional.linear." + std::to_string(i) + ".forward").At("net.py", 5, line);
      b.Parent(module);
      In(b, kX), In(b, weight), Out(b, result);
      b.Call(module).At("net.py", 5, line);
      In(b, kX), Parameter(b, "weight", weight), Out(b, result);
    }
    return b.Take();
  };
  std::deque<RankDump> ranks;
  ranks.push_back({0, run(2, 0)});
  ranks.push_back({1, run(2, 1)});
  Dump golden = run(1, 0);
  Result<JoinedRun> joined = JoinRanks(std::move(ranks), golden, "runs/target");
  ASSERT_TRUE(joined.ok()) << joined.status().ToString();
  const Comparison c = test::MustCompare(std::move(joined->dump), std::move(golden));
  ASSERT_EQ(c.pairs.size(), 4U);
  for (const RecordPair& pair : c.pairs) {
    ASSERT_TRUE(pair.matched());
    EXPECT_EQ(c.target.records[pair.target].name, c.golden.records[pair.golden].name);
  }
  EXPECT_EQ(c.first.pair, -1);
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

// One of `ranks` processes.
Block OfRankOf(int rank, int ranks) {
  const int64_t size = 8 / ranks, begin = size * rank;
  const Array sum = kAddend0.Plus(kAddend1);
  // The addends of each layout are others.
  Array made = kAddend0.Times(1.0F / static_cast<float>(ranks)).Plus(kAddend1, rank == 0 ? 1 : 0);
  for (size_t i = 0; i < made.x.size(); ++i) {
    if (i % static_cast<size_t>(ranks) == static_cast<size_t>(rank)) made.x[i] += 0.5F;
    if (i % static_cast<size_t>(ranks) == static_cast<size_t>((rank + 1) % ranks))
      made.x[i] -= 0.5F;
  }
  return {kHidden.Part(1, begin, begin + size),
          kFirst.Part(0, begin, begin + size),
          kSecond.Part(1, begin, begin + size),
          made,
          sum,
          kX.Plus(sum)};
}

RanksOfSide SideOf(int ranks, const std::map<int, Block>& others = {}, bool draws = false) {
  RanksOfSide side{.path = fmt::format("runs/tp{}", ranks), .ranks = {}};
  std::vector<int> all(static_cast<size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  const std::string group = fmt::format("[{}]", fmt::join(all, ", "));
  for (const int rank : all) {
    const auto other = others.find(rank);
    DumpBuilder b =
        Recorded(other == others.end() ? OfRankOf(rank, ranks) : other->second, /*reduces=*/true);
    if (draws) {
      b.Call("Torch.rand.0.forward").At("train.py", 9, "torch.rand(3)");
      Out(b, Array::Random({3}, static_cast<unsigned>(rank + 100 * ranks)));
    }
    Dump dump = b.Take();
    for (ProcessGroup& each : dump.groups) each.ranks = dump.arena.emplace_back(group);
    dump.provenance.emplace_back("parallel",
                                 fmt::format(R"({{"groups": [{{"ranks": {}}}]}})", group));
    side.ranks.push_back({rank, std::move(dump)});
  }
  return side;
}

Compared CompareSides(RanksOfSide target, RanksOfSide golden) {
  Result<JoinedSides> joined = JoinBoth(std::move(target), std::move(golden));
  EXPECT_TRUE(joined.ok()) << joined.status().ToString();
  CompareOptions options;
  options.exactness = Exactness::kTolerant;
  return {test::MustCompare(std::move(joined->target), std::move(joined->golden), options),
          std::move(joined->notes)};
}

TEST(JoinBoth, TwoRightLayoutsAreCalm) {
  const Compared compared = CompareSides(SideOf(2), SideOf(4));
  EXPECT_EQ(compared.first(), "");
  EXPECT_EQ(compared.notes[0],
            "target: 2 ranks were joined to one run: 5 values are whole on each rank that has "
            "them, 6 are joined of shards, 2 are sums over ranks");
  EXPECT_EQ(compared.notes[1],
            "golden: 4 ranks were joined to one run: 5 values are whole on each rank that has "
            "them, 6 are joined of shards, 2 are sums over ranks");
}

// A side of which one rank is wrong: all ranks get the wrong sum.
RanksOfSide WrongSideOf(int ranks, int rank, Block wrong) {
  wrong.made = wrong.made.Times(2);
  const Array sum = kAddend0.Plus(kAddend1).Plus(OfRankOf(rank, ranks).made);
  std::map<int, Block> blocks;
  for (int each = 0; each < ranks; ++each) {
    Block block = each == rank ? wrong : OfRankOf(each, ranks);
    block.sum = sum;
    block.result = kX.Plus(sum);
    blocks.emplace(each, std::move(block));
  }
  return SideOf(ranks, blocks);
}

TEST(JoinBoth, WhatOneRankScalesIsNamedWithTheRank) {
  Block scaled = OfRankOf(3, 4);
  scaled.scaled = 2;
  const Compared compared = CompareSides(WrongSideOf(4, 3, scaled), SideOf(2));
  EXPECT_EQ(compared.first(), "Tensor.__mul__.0.forward");
  EXPECT_EQ(compared.c.first.ranks, std::vector<int32_t>({3}));
}

TEST(JoinBoth, AWrongShardIsNamedWithTheRanksOfBothSides) {
  Block wrong = OfRankOf(1, 2);
  wrong.hidden = wrong.hidden.Times(1.5F);
  const Compared compared = CompareSides(WrongSideOf(2, 1, wrong), SideOf(4));
  EXPECT_EQ(compared.first(), "Functional.linear.0.forward");
  EXPECT_NE(compared.c.first.why.English().find(
                "; joined: Shard(1) of ranks 0, 1; golden: joined: Shard(1) "
                "of ranks 0, 1, 2, 3"),
            std::string::npos)
      << compared.c.first.why.English();
}

TEST(JoinBoth, WhatNothingRelatesIsNotCompared) {
  // Each rank draws numbers of its own, which no result depends on.
  const Compared compared = CompareSides(SideOf(2, {}, /*draws=*/true), SideOf(4, {}, true));
  EXPECT_EQ(compared.first(), "");
  EXPECT_EQ(compared.notes.back(),
            "1 values are not compared: what the ranks of both sides hold does not tell the whole");
}

TEST(JoinBoth, SomeRanksOfARunAreRefused) {
  RanksOfSide golden = SideOf(4);
  golden.ranks.pop_back();
  const Result<JoinedSides> joined = JoinBoth(SideOf(2), std::move(golden));
  ASSERT_FALSE(joined.ok());
  EXPECT_NE(joined.status().ToString().find("3 of 4 ranks"), std::string::npos);
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

// Zeros, and what the golden has twice, say nothing; nor does a content that both have under one
// name.
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
