#include "engine/dump/session/dump_place.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "tests/base/temporary_folder.h"

namespace msprobe::dump {
namespace {

class DumpPlace : public testing::Test {
 protected:
  DumpPlace() { bad_.dump_path = folder_.Write("file", "text") + "/dump"; }
  ~DumpPlace() override { ::unsetenv("MSPROBE_DISABLE"); }

  TemporaryFolder folder_;
  Config bad_;
};

TEST_F(DumpPlace, IsCheckedForEveryTaskThatWrites) {
  for (const Task task : {Task::kStatistics, Task::kTensor, Task::kStructure, Task::kNanCheck,
                          Task::kOverflowCheck, Task::kGradProbe}) {
    bad_.task = task;
    const Status status = CheckDumpPlace(bad_, std::nullopt);
    EXPECT_EQ(status.code(), ErrorCode::kIo);
    EXPECT_NE(status.message().find(bad_.dump_path), std::string::npos);
    EXPECT_NE(status.hint().find("dump_path"), std::string::npos);
  }
  Config good;
  good.dump_path = folder_.path() + "/new/dump";
  EXPECT_TRUE(CheckDumpPlace(good, 3).ok());
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/new"));
}

TEST_F(DumpPlace, IsNotCheckedWhereNothingIsWritten) {
  Config off = bad_;
  off.dump_enable = false;
  EXPECT_TRUE(CheckDumpPlace(off, 0).ok());
  off.dump_enable = true;
  EXPECT_FALSE(CheckDumpPlace(off, 0).ok());
  Config kernels = bad_;
  kernels.level = Level::kL2;
  EXPECT_TRUE(CheckDumpPlace(kernels, 0).ok());
  kernels.task = Task::kGradProbe;  // this task has no such level
  EXPECT_FALSE(CheckDumpPlace(kernels, 0).ok());
  ::setenv("MSPROBE_DISABLE", "1", 1);
  EXPECT_TRUE(CheckDumpPlace(bad_, 0).ok());
  ::setenv("MSPROBE_DISABLE", "0", 1);
  EXPECT_FALSE(CheckDumpPlace(bad_, 0).ok());
}

TEST_F(DumpPlace, IsCheckedByTheRanksThatWrite) {
  bad_.rank = {0, 8};
  EXPECT_FALSE(CheckDumpPlace(bad_, 0).ok());
  EXPECT_FALSE(CheckDumpPlace(bad_, 8).ok());
  EXPECT_TRUE(CheckDumpPlace(bad_, 1).ok());
  EXPECT_TRUE(CheckDumpPlace(bad_, std::nullopt).ok());
}

}  // namespace
}  // namespace msprobe::dump
