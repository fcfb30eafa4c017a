#include "engine/formats/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "tests/formats/golden.h"

namespace msprobe {
namespace {

TEST(AtomicFile, HasItsNameOnlyAfterCommit) {
  const std::string folder = TestFolder(), path = folder + "/a";
  ASSERT_TRUE(WriteFileAtomically(path, "old").ok());
  Result<AtomicFile> file = AtomicFile::Create(path);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->Write({"n", "", "ew"}).ok());
  EXPECT_EQ(ReadAll(path), "old");
  EXPECT_EQ(file->size(), 3u);
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(ReadAll(path), "new");
  EXPECT_EQ(file->Commit().code(), ErrorCode::kInternal);
  EXPECT_EQ(file->Write({"x"}).code(), ErrorCode::kInternal);
  ExpectFolderHolds(folder, {"a"});
}

TEST(AtomicFile, WithoutCommitNothingIsLeft) {
  const std::string folder = TestFolder();
  {
    Result<AtomicFile> file = AtomicFile::Create(folder + "/a");
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->Write({"half"}).ok());
    AtomicFile moved = std::move(*file);
    EXPECT_TRUE(IsRegularFile(moved.temporary_path()));
  }
  ExpectFolderHolds(folder, {});
}

TEST(AtomicFile, RefusesAFolderThatDoesNotExist) {
  const std::string path = TestFolder() + "/none/a";
  const Status status = AtomicFile::Create(path).status();
  EXPECT_EQ(status.code(), ErrorCode::kIo);
  EXPECT_EQ(status.path(), path);
}

// A file size limit stands in for a full disk: both make write(2) fail halfway.
TEST(AtomicFile, AFullDiskIsAnErrorAndLeavesNothing) {
  const std::string folder = TestFolder();
  rlimit old_limit;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  rlimit limit = old_limit;
  limit.rlim_cur = 1000;
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  Status status;
  {
    Result<AtomicFile> file = AtomicFile::Create(folder + "/a");
    status = file->Write({std::string(600, 'x'), std::string(600, 'y')});
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(status.code(), ErrorCode::kIo);
  ExpectFolderHolds(folder, {});
}

}  // namespace
}  // namespace msprobe
