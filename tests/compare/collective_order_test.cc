// Ranks that leave the order of the collective calls of their group.
#include "engine/compare/ranks/collective_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/compare/ranks/rank_result.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::MustCompare;
using test::Value;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RankResult OfRank(int32_t rank, CollectiveOrder order, int32_t first = -1) {
  RankResult r;
  r.rank = rank;
  r.collectives = std::move(order);
  r.first.pair = first;
  return r;
}

CollectiveOrder Lone(bool in_target, std::string key, int32_t pair = 7) {
  return {.lone = {{.pair = pair, .in_target = in_target, .key = std::move(key), .name = "a"}}};
}

std::vector<int32_t> Named(std::vector<RankResult> results) {
  JudgeCollectives(results);
  std::vector<int32_t> ranks;
  for (const RankResult& r : results) {
    if (r.first_name.English() == "a") ranks.push_back(r.rank);
  }
  return ranks;
}

TEST(CollectiveOrder, ARankThatLeavesOutACallOfOthersIsNamed) {
  const std::string key = "all_reduce [0, 1] #3";
  EXPECT_THAT(Named({OfRank(0, {}), OfRank(1, Lone(false, key)), OfRank(2, {})}), ElementsAre(1));
  // All of its group leave it out: the programs differ, and not the ranks.
  EXPECT_THAT(Named({OfRank(0, Lone(false, key)), OfRank(1, Lone(false, key)), OfRank(2, {})}),
              IsEmpty());
  EXPECT_THAT(Named({OfRank(1, Lone(false, "all_reduce [1, 12] #3")), OfRank(2, {})}), IsEmpty());
}

TEST(CollectiveOrder, OthersMayWaitForIt) {
  std::vector<RankResult> results = {OfRank(0, {.after_end = {"all_reduce [0, 1] #3"}}),
                                     OfRank(1, Lone(false, "all_reduce [0, 1] #3"))};
  JudgeCollectives(results);
  EXPECT_THAT(results[1].first.why.English(), HasSubstr("the recording of rank 0 ends at it"));
  EXPECT_EQ(results[1].summary.verdict, RunVerdict::kDiffers);
  // Rank 0 ended long before: nobody knows whether it would have made the call.
  EXPECT_THAT(Named({OfRank(0, {.after_end = {"all_reduce [0, 1] #1"}}),
                     OfRank(1, Lone(false, "all_reduce [0, 1] #3"))}),
              IsEmpty());
}

TEST(CollectiveOrder, ARankThatMakesOneCallMoreIsNamed) {
  const std::string key = "broadcast [0, 1] #0";
  EXPECT_THAT(Named({OfRank(0, {}), OfRank(1, Lone(true, key))}), ElementsAre(1));
  EXPECT_THAT(Named({OfRank(0, Lone(true, key)), OfRank(1, Lone(true, key))}), IsEmpty());
  // Rank 0 was cut short: it may have made the call later.
  EXPECT_THAT(
      Named({OfRank(0, {.after_end = {"all_gather [0, 1] #0"}}), OfRank(1, Lone(true, key))}),
      IsEmpty());
}

TEST(CollectiveOrder, AWrongNumberBeforeItIsTheFirstDivergence) {
  const std::string key = "all_reduce [0, 1] #3";
  EXPECT_THAT(Named({OfRank(0, {}), OfRank(1, Lone(false, key), /*first=*/3)}), IsEmpty());
  EXPECT_THAT(Named({OfRank(0, {}), OfRank(1, Lone(false, key), /*first=*/9)}), ElementsAre(1));
}

// Sums over all ranks; `without`: the number of one that is left out.
Dump Sums(int count, int without = -1, double off = 0) {
  DumpBuilder b;
  for (int i = 0; i < count; ++i) {
    b.Call("Torch.sin." + std::to_string(i) + ".forward").In(Value(20 + i)).Out(Value(40 + i, off));
    if (i == without) continue;
    const int number = i - (without >= 0 && i > without);
    b.Call("Distributed.all_reduce." + std::to_string(number) + ".forward");
    b.In(Value(40 + i, off)).Out(Value(60 + i, off));
  }
  return b.Take();
}

TEST(CollectiveOrder, IsThatOfCallsWhichOneRunMakesAndGoesOn) {
  const CollectiveOrder order = CollectiveOrderOf(MustCompare(Sums(3, 1), Sums(3)), 0);
  ASSERT_EQ(order.lone.size(), 1U);
  EXPECT_EQ(order.lone[0].name, "Distributed.all_reduce.1.forward");
  EXPECT_FALSE(order.lone[0].in_target);
  const CollectiveOrder more = CollectiveOrderOf(MustCompare(Sums(3), Sums(3, 1)), 0);
  ASSERT_EQ(more.lone.size(), 1U);
  EXPECT_TRUE(more.lone[0].in_target);
  EXPECT_THAT(CollectiveOrderOf(MustCompare(Sums(3), Sums(3)), 0).lone, IsEmpty());
}

TEST(CollectiveOrder, ACallThatBothMakeIsNotLeftOutWhereverItsPartnerIs) {
  Comparison c = MustCompare(Sums(3), Sums(3));
  RecordPair& pair = c.pairs[3];
  ASSERT_EQ(c.target.records[pair.target].api.view(), "Distributed.all_reduce");
  RecordPair alone = pair;
  alone.target = -1;
  pair.golden = -1;
  c.pairs.push_back(alone);
  EXPECT_THAT(CollectiveOrderOf(c, 0).lone, IsEmpty());
}

TEST(CollectiveOrder, WhatComesAfterTheEndOfARecordingIsNotLeftOut) {
  Dump cut = Sums(1);
  cut.complete = false;
  const CollectiveOrder order = CollectiveOrderOf(MustCompare(std::move(cut), Sums(3)), 0);
  EXPECT_THAT(order.lone, IsEmpty());
  ASSERT_EQ(order.after_end.size(), 1U);
  EXPECT_THAT(order.after_end[0], ::testing::EndsWith("#1"));
}

}  // namespace
}  // namespace msprobe::compare
