#include "engine/base/writable_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/base/temporary_folder.h"

namespace msprobe {
namespace {

namespace fs = std::filesystem;

class WritableFolder : public testing::Test {
 protected:
  std::string Below(const std::string& name) const { return root_ + "/" + name; }
  void ExpectRefused(const std::string& path, const std::string& reason) const {
    const Status status = CheckWritable(path);
    EXPECT_EQ(status.code(), ErrorCode::kIo) << path;
    EXPECT_NE(status.message().find(path), std::string::npos) << status.message();
    EXPECT_NE(status.message().find(reason), std::string::npos) << status.message();
  }

  const TemporaryFolder temporary_;
  const std::string root_ = temporary_.path();
};

TEST_F(WritableFolder, OneThatExistsOrCanBeMadeIsFineAndStaysAsItWas) {
  fs::create_directory(Below("there"));
  for (const std::string& path :
       {root_, root_ + "/", Below("there"), Below("new"), Below("new/deep/er")})
    EXPECT_TRUE(CheckWritable(path).ok()) << path << ": " << CheckWritable(path).message();
  EXPECT_TRUE(fs::is_empty(Below("there")));
  EXPECT_FALSE(fs::exists(Below("new")));
}

TEST_F(WritableFolder, APathWithoutAFolderIsBelowTheWorkingFolder) {
  const fs::path before = fs::current_path();
  fs::current_path(root_);
  EXPECT_TRUE(CheckWritable("new").ok());
  EXPECT_TRUE(CheckWritable("./new").ok());
  EXPECT_TRUE(CheckWritable(".").ok());
  fs::current_path(before);
  EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(WritableFolder, FilesAndWhatLiesBelowThemAreRefused) {
  std::ofstream(Below("file")) << "text";
  ExpectRefused(Below("file"), "Not a directory");
  ExpectRefused(Below("file/below"), "Not a directory");
  ExpectRefused(Below("file/below/deeper"), "Not a directory");
}

TEST_F(WritableFolder, LinksToNothingAndToThemselvesAreRefused) {
  fs::create_symlink(Below("nowhere"), Below("dangling"));
  ExpectRefused(Below("dangling"), "Not a directory");
  fs::create_symlink(Below("loop"), Below("loop"));
  ExpectRefused(Below("loop"), "Too many levels of symbolic links");
  fs::create_directory(Below("there"));
  fs::create_directory_symlink(Below("there"), Below("link"));
  EXPECT_TRUE(CheckWritable(Below("link")).ok());
  EXPECT_TRUE(CheckWritable(Below("link/new")).ok());
}

TEST_F(WritableFolder, WhereTheSystemRefusesTheReasonIsSaid) {
  ExpectRefused("/proc/self", "cannot write to the directory");
  ExpectRefused("/proc/none/dump", "cannot create the directory");
  ExpectRefused(Below(std::string(300, 'a')), "File name too long");
  if (::geteuid() == 0) return;  // root may write everywhere
  fs::permissions(root_, fs::perms::owner_read | fs::perms::owner_exec);
  ExpectRefused(root_, "Permission denied");
  ExpectRefused(Below("new"), "Permission denied");
  fs::permissions(root_, fs::perms::owner_all);
}

TEST_F(WritableFolder, ANewFolderIsGoneWithoutAResult) {
  {
    NewFolder folder;
    ASSERT_TRUE(folder.Make(Below("new/deep")).ok());
    ASSERT_TRUE(fs::is_directory(Below("new/deep")));
    folder.Add(Below("new/deep/a.pt"));
    std::ofstream(Below("new/deep/a.pt")) << "1";
    folder.Add(Below("new/deep/never"));
    NewFolder moved = std::move(folder);
  }
  EXPECT_FALSE(fs::exists(Below("new")));
}

TEST_F(WritableFolder, WhatWasThereOrIsKeptStays) {
  fs::create_directory(Below("there"));
  std::ofstream(Below("there/mine")) << "1";
  {
    NewFolder folder;
    ASSERT_TRUE(folder.Make(Below("there/new")).ok());
    folder.Add(Below("there/mine"));
  }
  EXPECT_TRUE(fs::exists(Below("there/mine")));
  EXPECT_FALSE(fs::exists(Below("there/new")));
  {
    NewFolder folder;
    ASSERT_TRUE(folder.Make(Below("other/full")).ok());
    std::ofstream(Below("other/full/by another")) << "1";
    NewFolder kept;
    ASSERT_TRUE(kept.Make(Below("kept")).ok());
    kept.Keep();
    EXPECT_FALSE(kept.Make(Below("there/mine/below")).ok());
  }
  EXPECT_TRUE(fs::exists(Below("other/full/by another")));
  EXPECT_TRUE(fs::exists(Below("kept")));
}

}  // namespace
}  // namespace msprobe
