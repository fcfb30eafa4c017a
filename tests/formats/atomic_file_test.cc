#include "engine/base/atomic_file.h"

#include <gtest/gtest.h>

#include "tests/base/full_disk.h"
#include "tests/formats/golden.h"

namespace msprobe::formats {
namespace {

TEST(AtomicFile, HasItsNameOnlyAfterCommit) {
  const std::string folder = TestFolder(), path = folder + "/a";
  ASSERT_TRUE(WriteFileAtomically(path, "old").ok());
  Result<AtomicFile> file = AtomicFile::Create(path);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->Write({"n", "", "ew"}).ok());
  EXPECT_EQ(ReadWhole(path), "old");
  EXPECT_EQ(file->size(), 3u);
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(ReadWhole(path), "new");
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

TEST(AtomicFile, AFullDiskIsAnErrorAndLeavesNothing) {
  const std::string folder = TestFolder();
  {
    const FullDisk full(1000);
    Result<AtomicFile> file = AtomicFile::Create(folder + "/a");
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(file->Write({std::string(600, 'x'), std::string(600, 'y')}).code(), ErrorCode::kIo);
  }
  ExpectFolderHolds(folder, {});
}

}  // namespace
}  // namespace msprobe::formats
