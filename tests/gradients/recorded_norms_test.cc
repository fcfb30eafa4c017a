#include "engine/gradients/recorded_norms.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/base/english.h"
#include "tests/base/temporary_folder.h"

namespace msprobe::gradients {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RecordedNormsTest : public ::testing::Test {
 protected:
  // `rows`: of "param_name,max,norm,shape".
  void Table(const std::string& folder, int step, std::string_view rows) {
    const fs::path path = fs::path(folder_.path()) / folder;
    fs::create_directories(path);
    std::ofstream(path / fmt::format("grad_summary_{}.csv", step)) << "param_name,max,norm,shape\n"
                                                                   << rows;
  }
  TemporaryFolder folder_;
};

TEST_F(RecordedNormsTest, AreOfAllRanksAndSteps) {
  Table("rank0", 2, "a,1,3,[2]\nb,1,4,[2]\n");
  Table("rank1", 5, "a,1,9,[2]\n");
  ASSERT_TRUE(IsRecording(folder_.path()));
  const Result<Recording> recording = FindRecording(folder_.path());
  ASSERT_TRUE(recording.ok()) << recording.status().message();
  EXPECT_THAT(recording->ranks, ElementsAre(0, 1));
  EXPECT_THAT(recording->steps, ElementsAre(2, 5));
  std::vector<std::string> read;
  const NormFindings found = ReadNorms(*recording, [&](const RecordedNorm& n) {
    read.push_back(fmt::format("{} {} {} {} {}", n.rank, n.step, n.parameter, n.norm, n.is_finite));
  });
  EXPECT_THAT(read, ElementsAre("0 0 a 3 true", "0 0 b 4 true", "1 1 a 9 true"));
  EXPECT_EQ(found.parameters, 2u);
  EXPECT_FALSE(found.first_not_finite);
  ASSERT_TRUE(found.largest);
  EXPECT_EQ(found.largest->rank, 1);
  EXPECT_EQ(found.largest->step, 5);
  EXPECT_EQ(found.largest->norm, 9);
}

TEST_F(RecordedNormsTest, TheLastOfTheFirstStepWithNanIsNamed) {
  Table("", 0, "a,1,1,[2]\nb,1,1,[2]\nempty,nan,0,[0]\n");
  Table("", 1, "a,nan,nan,[2]\nb,inf,inf,[2]\nc,1,1,[2]\n");
  Table("", 2, "c,nan,nan,[2]\n");
  const Result<Recording> recording = FindRecording(folder_.path());
  ASSERT_TRUE(recording.ok());
  EXPECT_THAT(recording->ranks, ElementsAre(-1));
  const NormFindings found = ReadNorms(*recording, [](const RecordedNorm&) {});
  ASSERT_TRUE(found.first_not_finite);
  EXPECT_EQ(found.first_not_finite->step, 1);
  EXPECT_EQ(found.first_not_finite->parameter, "b");
  EXPECT_EQ(found.not_finite_beside, 1u);
}

TEST_F(RecordedNormsTest, ADamagedTableIsAnErrorAndTheOthersAreRead) {
  Table("", 0, "a,1,1,[2]\n");
  Table("", 1, "a,1,[2]\n");
  const Result<Recording> recording = FindRecording(folder_.path());
  ASSERT_TRUE(recording.ok());
  const NormFindings found = ReadNorms(*recording, [](const RecordedNorm&) {});
  EXPECT_THAT(EnglishOf(found.errors),
              ElementsAre(HasSubstr("expected 4 cells in row 2, found 3")));
  ASSERT_TRUE(found.largest);
  EXPECT_EQ(found.largest->norm, 1);
}

TEST_F(RecordedNormsTest, AnotherFolderIsNoRecording) {
  EXPECT_FALSE(IsRecording(folder_.path()));
  EXPECT_FALSE(IsRecording(folder_.path() + "/missing"));
  EXPECT_FALSE(FindRecording(folder_.path()).ok());
}

}  // namespace
}  // namespace msprobe::gradients
