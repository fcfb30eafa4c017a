#include "engine/gradients/written_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "tests/base/english.h"
#include "tests/base/temporary_folder.h"

namespace msprobe::gradients {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class WrittenComparisonTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, std::string_view text) {
    const fs::path path = fs::path(folder_.path()) / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  }
  TemporaryFolder folder_;
};

TEST_F(WrittenComparisonTest, OfOneRankHasItsSharesAndFalls) {
  Write("rank3/similarities.csv", "step,4,7\na,1,0.5\nb,0.99,\nsummary,0.995,0.5\n");
  ASSERT_TRUE(IsWrittenComparison(folder_.path()));
  const Result<GradientComparison> c = ReadWrittenComparison(folder_.path());
  ASSERT_TRUE(c.ok()) << c.status().message();
  ASSERT_EQ(c->ranks.size(), 1u);
  EXPECT_EQ(c->ranks[0].rank, 3);
  EXPECT_EQ(c->ranks[0].summary[0].share(), 0.995);
  EXPECT_THAT(c->all.parameters(), ElementsAre("a", "b"));
  EXPECT_FALSE(c->all.At(1, 1).known());
  EXPECT_TRUE(std::isnan(c->all.At(0, 0).target_norm));
  ASSERT_TRUE(c->fall);
  EXPECT_EQ(c->fall->step, 7);
  EXPECT_EQ(c->fall->parameter, "a");
  EXPECT_EQ(c->fall->count, -1);
  ASSERT_TRUE(c->first_difference);
  EXPECT_EQ(c->first_difference->step, 4);
  EXPECT_EQ(c->first_difference->parameter, "b");
}

TEST_F(WrittenComparisonTest, OfRanksWithoutATableOfAllShowsTheLowest) {
  Write("rank0/similarities.csv", "step,0,1\na,1,0.9\nsummary,1,0.9\n");
  Write("rank1/similarities.csv", "step,1,2\na,0.7,1\nb,1,1\nsummary,0.8,1\n");
  const Result<GradientComparison> c = ReadWrittenComparison(folder_.path());
  ASSERT_TRUE(c.ok()) << c.status().message();
  EXPECT_THAT(c->all.steps(), ElementsAre(0, 1, 2));
  EXPECT_EQ(c->all.At(0, 1).share(), 0.7);
  EXPECT_FALSE(c->all.At(1, 0).known());
  EXPECT_THAT(EnglishOf(c->notes), ElementsAre(HasSubstr("lowest similarity of any rank")));

  Write("similarities.csv", "step,0,1,2\na,1,0.8,1\nsummary,1,0.8,1\n");
  const Result<GradientComparison> with_all = ReadWrittenComparison(folder_.path());
  ASSERT_TRUE(with_all.ok());
  EXPECT_EQ(with_all->all.At(0, 1).share(), 0.8);
  EXPECT_THAT(with_all->notes, IsEmpty());
}

TEST_F(WrittenComparisonTest, ADamagedTableIsNamedAndTheOthersAreShown) {
  Write("rank0/similarities.csv", "step,0\na,1\nsummary,1\n");
  Write("rank1/similarities.csv", "step,0\na,2\nsummary,1\n");
  const Result<GradientComparison> c = ReadWrittenComparison(folder_.path());
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(c->ranks.size(), 1u);
  EXPECT_THAT(EnglishOf(c->errors),
              ElementsAre(HasSubstr("a share from 0 to 1 in row 2, found \"2\"")));
}

TEST_F(WrittenComparisonTest, AnotherTableIsRefused) {
  for (const auto& [text, wanted] : std::vector<std::pair<std::string_view, std::string_view>>{
           {"a,b\n1,2\n", "\"step\" and numbers of steps in row 1"},
           {"step\na\n", "numbers of steps in row 1"},
           {"step,1,1\na,1,1\nsummary,1,1\n", "ascending"},
           {"step,99999999999999999999\n", "numbers of steps"},
           {"step,0\na,nan\nsummary,1\n", "found \"nan\""},
           {"step,0,1\na,1\nsummary,1,1\n", "3 cells in row 2"},
           {"step,0\na,1\n", "a last row \"summary\""}}) {
    const Result<GradientComparison> c = ReadWrittenComparison(Write("t.csv", text));
    ASSERT_FALSE(c.ok()) << text;
    EXPECT_THAT(c.status().message(), HasSubstr(wanted));
  }
  EXPECT_FALSE(IsWrittenComparison(Write("other.csv", "NPU Name,Result\n")));
  EXPECT_TRUE(IsWrittenComparison(Write("t.csv", "step,0\n")));
  EXPECT_FALSE(IsWrittenComparison(folder_.path()));
  EXPECT_FALSE(ReadWrittenComparison(folder_.path()).ok());
}

}  // namespace
}  // namespace msprobe::gradients
