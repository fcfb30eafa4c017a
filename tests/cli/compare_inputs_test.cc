#include "cli/inputs/compare_inputs.h"

#include <gmock/gmock.h>

#include <string>

#include "engine/base/file.h"
#include "tests/base/temporary_folder.h"

namespace msprobe::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class CompareInputs : public ::testing::Test {
 protected:
  std::string Dump(const std::string& folder, const std::string& name = "dump.json") {
    return root_.Write(folder + "/" + name,
                       "{\"task\": \"statistics\", \"level\": \"L1\", \"data\": {}}");
  }
  std::string Path(const std::string& name) { return JoinPath(root_.path(), name); }
  const TemporaryFolder root_;
};

TEST_F(CompareInputs, FilesAreTakenAsTheyAre) {
  const std::string a = Dump("a/rank3"), b = Dump("b/rank7");
  const auto pairs = PairDumps(a, b);
  ASSERT_TRUE(pairs.ok()) << pairs.status().ToString();
  ASSERT_EQ(pairs->pairs.size(), 1u);
  EXPECT_EQ(pairs->pairs[0].target, a);
  EXPECT_EQ(pairs->pairs[0].golden, b);
  EXPECT_FALSE(pairs->pairs[0].debug_save);
}

TEST_F(CompareInputs, FolderOfOneDumpAgainstAFile) {
  Dump("a/step0/proc11");
  const auto pairs = PairDumps(Path("a"), Dump("b"));
  ASSERT_TRUE(pairs.ok()) << pairs.status().ToString();
  EXPECT_THAT(pairs->pairs[0].target, EndsWith("step0/proc11/dump.json"));
}

TEST_F(CompareInputs, RanksArePairedByNumber) {
  for (const char* side : {"a", "b"}) {
    for (const char* rank : {"10", "2", "0"}) Dump(std::string(side) + "/rank" + rank);
  }
  const auto pairs = PairDumps(Path("a"), Path("b"));
  ASSERT_TRUE(pairs.ok()) << pairs.status().ToString();
  ASSERT_EQ(pairs->pairs.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const int rank[] = {0, 2, 10};
    EXPECT_EQ(pairs->pairs[i].rank, rank[i]);
    EXPECT_THAT(pairs->pairs[i].target, HasSubstr("a/rank" + std::to_string(rank[i]) + "/"));
    EXPECT_THAT(pairs->pairs[i].golden, HasSubstr("b/rank" + std::to_string(rank[i]) + "/"));
  }
}

TEST_F(CompareInputs, DifferentRanksAreRefused) {
  Dump("a/rank0"), Dump("a/rank2"), Dump("b/rank0"), Dump("b/rank1");
  const auto pairs = PairDumps(Path("a"), Path("b"));
  ASSERT_FALSE(pairs.ok());
  EXPECT_THAT(pairs.status().message(), HasSubstr("has 0, 2"));
  EXPECT_THAT(pairs.status().message(), HasSubstr("has 0, 1"));
}

TEST_F(CompareInputs, OneRankASideWithOtherNumbersIsRefusedUnlessNamed) {
  Dump("a/rank0"), Dump("b/rank1");
  EXPECT_FALSE(PairDumps(Path("a"), Path("b")).ok());
  EXPECT_TRUE(PairDumps(Path("a/rank0"), Path("b/rank1")).ok());
}

TEST_F(CompareInputs, CommonRanksAndStepsOnDemand) {
  for (const char* dump : {"a/step0/rank0", "a/step0/rank1", "a/step7/rank0", "b/step0/rank0",
                           "b/step0/rank2", "b/step8/rank0"})
    Dump(dump);
  const auto refused = PairDumps(Path("a"), Path("b"));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("the steps differ"));
  const auto pairs = PairDumps(Path("a"), Path("b"), {.common = true});
  ASSERT_TRUE(pairs.ok()) << pairs.status().ToString();
  ASSERT_EQ(pairs->pairs.size(), 1u);
  EXPECT_EQ(pairs->pairs[0].rank, 0);
  EXPECT_EQ(pairs->left_out.size(), 4u);
}

TEST_F(CompareInputs, StepsArePairedByNumber) {
  for (const char* side : {"a", "b"}) {
    for (const char* step : {"10", "2"}) Dump(std::string(side) + "/step" + step + "/rank");
  }
  const auto pairs = PairDumps(Path("a"), Path("b"));
  ASSERT_TRUE(pairs.ok()) << pairs.status().ToString();
  ASSERT_EQ(pairs->pairs.size(), 2u);
  EXPECT_EQ(pairs->pairs[0].step, 2);
  EXPECT_THAT(pairs->pairs[1].golden, HasSubstr("b/step10/"));
}

TEST_F(CompareInputs, SelectedRanksAndSteps) {
  for (const char* side : {"a", "b"}) {
    for (const char* rank : {"0", "1", "2"})
      for (const char* step : {"0", "1"}) Dump(std::string(side) + "/step" + step + "/rank" + rank);
  }
  const auto pairs = PairDumps(Path("a"), Path("b"), {.ranks = {{0, 2}}, .steps = {{1}}});
  ASSERT_TRUE(pairs.ok()) << pairs.status().ToString();
  ASSERT_EQ(pairs->pairs.size(), 2u);
  EXPECT_EQ(pairs->pairs[1].rank, 2);
  EXPECT_EQ(pairs->pairs[1].step, -1);  // -1: there is only one step
  const auto missing = PairDumps(Path("a"), Path("b"), {.ranks = {{0, 5}}});
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.status().message(), HasSubstr("has no rank 5; it has 0, 1, 2"));
}

TEST_F(CompareInputs, StepFoldersAreTheSameStepWhateverTheirNumbers) {
  Dump("a/step0/rank0"), Dump("a/step0/rank1"), Dump("b/step5/rank0"), Dump("b/step5/rank1");
  EXPECT_FALSE(PairDumps(Path("a"), Path("b")).ok());
  const auto pairs = PairDumps(Path("a/step0"), Path("b/step5"));
  ASSERT_TRUE(pairs.ok()) << pairs.status().ToString();
  EXPECT_EQ(pairs->pairs.size(), 2u);
}

TEST_F(CompareInputs, NothingThere) {
  EXPECT_EQ(PairDumps(Path("a"), Path("b")).status().code(), ErrorCode::kNotFound);
  ASSERT_TRUE(MakeDirectories(Path("a")).ok());
  EXPECT_EQ(PairDumps(Path("a"), Dump("b")).status().code(), ErrorCode::kInvalidArgument);
}

TEST_F(CompareInputs, HalvesOfAMixedDumpAreNamed) {
  Dump("a/pynative/step0/rank0");
  const Status status = PairDumps(Path("a"), Path("a")).status();
  EXPECT_THAT(status.ToString(), HasSubstr("a/pynative"));
  EXPECT_TRUE(PairDumps(Path("a/pynative"), Path("a/pynative")).ok());
}

TEST_F(CompareInputs, DebugSaves) {
  const auto pairs = PairDumps(Dump("a", "debug.json"), Dump("b", "debug.json"));
  ASSERT_TRUE(pairs.ok());
  EXPECT_TRUE(pairs->pairs[0].debug_save);
}

}  // namespace
}  // namespace msprobe::cli
