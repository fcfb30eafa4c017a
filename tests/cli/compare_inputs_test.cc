#include "cli/compare_inputs.h"

#include <gmock/gmock.h>

#include <string>

#include "engine/base/file.h"
#include "tests/dump/temporary_folder.h"

namespace msprobe {
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
  ASSERT_EQ(pairs->size(), 1u);
  EXPECT_EQ((*pairs)[0].target, a);
  EXPECT_EQ((*pairs)[0].golden, b);
  EXPECT_FALSE((*pairs)[0].debug_save);
}

TEST_F(CompareInputs, FolderOfOneDumpAgainstAFile) {
  Dump("a/step0/proc11");
  const auto pairs = PairDumps(Path("a"), Dump("b"));
  ASSERT_TRUE(pairs.ok()) << pairs.status().ToString();
  EXPECT_THAT((*pairs)[0].target, EndsWith("step0/proc11/dump.json"));
}

TEST_F(CompareInputs, RanksArePairedByNumber) {
  for (const char* side : {"a", "b"}) {
    for (const char* rank : {"10", "2", "0"}) Dump(std::string(side) + "/rank" + rank);
  }
  const auto pairs = PairDumps(Path("a"), Path("b"));
  ASSERT_TRUE(pairs.ok()) << pairs.status().ToString();
  ASSERT_EQ(pairs->size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const int rank[] = {0, 2, 10};
    EXPECT_EQ((*pairs)[i].rank, rank[i]);
    EXPECT_THAT((*pairs)[i].target, HasSubstr("a/rank" + std::to_string(rank[i]) + "/"));
    EXPECT_THAT((*pairs)[i].golden, HasSubstr("b/rank" + std::to_string(rank[i]) + "/"));
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

TEST_F(CompareInputs, SeveralStepsAreListed) {
  Dump("a/step0/rank"), Dump("a/step7/rank"), Dump("b/step0/rank");
  const auto pairs = PairDumps(Path("a"), Path("b"));
  ASSERT_FALSE(pairs.ok());
  EXPECT_THAT(pairs.status().message(), HasSubstr("2 steps (0, 7)"));
  EXPECT_THAT(pairs.status().hint(), HasSubstr("a/step0"));
}

TEST_F(CompareInputs, NothingThere) {
  EXPECT_EQ(PairDumps(Path("a"), Path("b")).status().code(), ErrorCode::kNotFound);
  ASSERT_TRUE(MakeDirectories(Path("a")).ok());
  EXPECT_EQ(PairDumps(Path("a"), Dump("b")).status().code(), ErrorCode::kInvalidArgument);
}

TEST_F(CompareInputs, DebugSaves) {
  const auto pairs = PairDumps(Dump("a", "debug.json"), Dump("b", "debug.json"));
  ASSERT_TRUE(pairs.ok());
  EXPECT_TRUE((*pairs)[0].debug_save);
}

}  // namespace
}  // namespace msprobe
