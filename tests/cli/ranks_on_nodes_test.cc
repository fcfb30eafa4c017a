#include "cli/cluster/ranks_on_nodes.h"

#include <gmock/gmock.h>

#include <string>

#include "cli/cluster/node_answer.h"

namespace msprobe::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string PathOf(const char* side, int rank) { return std::string(side) + std::to_string(rank); }

std::vector<DumpPair> Pairs(int ranks) {
  std::vector<DumpPair> pairs;
  for (int rank = 0; rank < ranks; ++rank)
    pairs.push_back({.target = PathOf("t", rank), .golden = PathOf("g", rank), .rank = rank});
  return pairs;
}

// A node with the dumps of the ranks from `first` to before `end`.
RayNodes::Node NodeWith(int first, int end, uint64_t bytes = 1) {
  RayNodes::Node node;
  for (int rank = first; rank < end; ++rank) {
    node.target.dumps.dumps.push_back({.path = PathOf("t", rank), .rank = rank, .refused = {}});
    node.golden.dumps.dumps.push_back({.path = PathOf("g", rank), .rank = rank, .refused = {}});
    node.target.bytes.push_back(bytes);
    node.golden.bytes.push_back(bytes);
  }
  return node;
}

TEST(RanksOnNodes, EachNodeGetsWhatItHas) {
  const std::vector<RayNodes::Node> nodes = {NodeWith(0, 3), NodeWith(2, 5)};
  RanksOnNodes ranks(Pairs(5), nodes);
  EXPECT_THAT(ranks.TakeWithoutNode(), IsEmpty());
  EXPECT_THAT(ranks.Take(0), ElementsAre(0));
  EXPECT_THAT(ranks.Take(1), ElementsAre(2));
  EXPECT_THAT(ranks.Take(0), ElementsAre(1));
  EXPECT_THAT(ranks.Take(0), IsEmpty());
}

TEST(RanksOnNodes, SmallDumpsAreComparedTogether) {
  const std::vector<RayNodes::Node> small = {NodeWith(0, 100)};
  EXPECT_THAT(RanksOnNodes(Pairs(100), small).Take(0), SizeIs(16));
  const std::vector<RayNodes::Node> large = {NodeWith(0, 100, uint64_t{40} << 20)};
  EXPECT_THAT(RanksOnNodes(Pairs(100), large).Take(0), ElementsAre(0));
  // So many nodes end at about the same time.
  const std::vector<RayNodes::Node> nodes(5, NodeWith(0, 100));
  EXPECT_THAT(RanksOnNodes(Pairs(100), nodes).Take(0), SizeIs(10));
}

TEST(RanksOnNodes, ARankOfALostNodeGoesToAnother) {
  const std::vector<RayNodes::Node> nodes = {NodeWith(0, 3), NodeWith(1, 3)};
  RanksOnNodes ranks(Pairs(3), nodes);
  ASSERT_THAT(ranks.Take(0), ElementsAre(0));
  ASSERT_THAT(ranks.Take(1), ElementsAre(1));
  ranks.Lose(0, std::vector<size_t>{0});
  EXPECT_THAT(ranks.TakeWithoutNode(), ElementsAre(0));
  EXPECT_THAT(ranks.ranks()[0].lost_nodes, ElementsAre(0));
  EXPECT_THAT(ranks.Take(1), ElementsAre(2));
  ranks.Lose(1, std::vector<size_t>{1, 2});
  EXPECT_THAT(ranks.TakeWithoutNode(), ElementsAre(1, 2));
}

TEST(RanksOnNodes, ARankThatLosesItsNodesIsGivenUp) {
  const std::vector<RayNodes::Node> nodes(5, NodeWith(0, 2));
  RanksOnNodes ranks(Pairs(2), nodes);
  for (size_t node = 0; node < 3; ++node) {
    EXPECT_THAT(ranks.TakeWithoutNode(), IsEmpty());
    ASSERT_THAT(ranks.Take(node), ElementsAre(0));
    ranks.Lose(node, std::vector<size_t>{0});
  }
  EXPECT_THAT(ranks.TakeWithoutNode(), ElementsAre(0));
  EXPECT_THAT(ranks.Take(3), ElementsAre(1));
}

TEST(RanksOnNodes, RanksThatComeBackAreAlone) {
  const std::vector<RayNodes::Node> nodes = {NodeWith(0, 8)};
  RanksOnNodes ranks(Pairs(8), nodes);
  const std::vector<size_t> block = ranks.Take(0);
  ASSERT_THAT(block, ElementsAre(0, 1, 2, 3));
  ranks.GiveBack(block);
  EXPECT_THAT(ranks.Take(0), ElementsAre(0));
  EXPECT_THAT(ranks.Take(0), ElementsAre(1));
}

TEST(NodeAnswer, NamesOfTables) {
  for (const char* name : {"compare_result_rank1_20260102030405.csv", "advisor_rank0_1.txt",
                           "step3/compare_result_rank1_1.xlsx", "debug_compare_result_1.csv"})
    EXPECT_TRUE(IsNameOfTable(name)) << name;
  for (const char* name :
       {"", "compare_part_1_of_2.bin", "../compare_result_1.csv", "/compare_result_1.csv",
        "step3/../compare_result_1.csv", "step3/step4/compare_result_1.csv",
        "stepx/compare_result.csv", "compare_result/../../a.csv", "compare_result_1.sh",
        "compare_result\n.csv", "a.csv"})
    EXPECT_FALSE(IsNameOfTable(name)) << name;
}

}  // namespace
}  // namespace msprobe::cli
