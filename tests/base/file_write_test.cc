// Writing with engine/base/file.h: appends and whole files.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <utility>

#include "engine/base/file.h"
#include "tests/base/full_disk.h"
#include "tests/base/temporary_folder.h"

namespace {
std::atomic<int> umask_calls = 0;
}

// Replaces the C library's umask, to see who calls it.
mode_t umask(mode_t mask) noexcept {
  ++umask_calls;
  return static_cast<mode_t>(::syscall(SYS_umask, mask));
}

namespace msprobe {
namespace {

mode_t Mode(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777;
}

TEST(AppendFile, CreatesEmptiesOrKeeps) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  for (const bool keep : {false, true, false}) {
    Result<AppendFile> file = AppendFile::Open(path, keep);
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE(file->is_open());
    EXPECT_EQ(file->path(), path);
    EXPECT_EQ(file->size(), keep ? 3u : 0u);
    ASSERT_TRUE(file->Append("abc").ok());
    ASSERT_TRUE(file->Append("").ok());
    EXPECT_EQ(file->size(), keep ? 6u : 3u);
    EXPECT_EQ(ReadWhole(path), keep ? "abcabc" : "abc");  // without Close: a kill loses nothing
    EXPECT_TRUE(file->Sync().ok());
    EXPECT_TRUE(file->Close().ok());
    EXPECT_FALSE(file->is_open());
    EXPECT_TRUE(file->Close().ok());
  }
}

TEST(AppendFile, AppendsAfterATruncation) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("file", "one\ntwo\nthr");
  Result<AppendFile> file = AppendFile::Open(path, true);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->TruncateTo(8).ok());
  EXPECT_EQ(file->size(), 8u);
  ASSERT_TRUE(file->Append("three\n").ok());
  EXPECT_EQ(ReadWhole(path), "one\ntwo\nthree\n");
}

TEST(AppendFile, AShortWriteIsUndone) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  Result<AppendFile> file = AppendFile::Open(path, false);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->Append("kept\n").ok());
  {
    const FullDisk full(10);
    const Status status = file->Append("too long for it\n");
    EXPECT_EQ(status.message(), path + ": cannot write: File too large");
    EXPECT_EQ(ReadWhole(path), "kept\n");
    EXPECT_EQ(file->size(), 5u);
    EXPECT_TRUE(file->Append("fits\n").ok());
  }
  EXPECT_EQ(ReadWhole(path), "kept\nfits\n");
}

TEST(AppendFile, ReplaceRefusesShorterTextAndMoreThanAPage) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  Result<AppendFile> file = AppendFile::Open(path, false);
  ASSERT_TRUE(file.ok());
  EXPECT_FALSE(file->Replace("not begun"));
  ASSERT_TRUE(file->Append("long").ok());
  EXPECT_FALSE(file->Replace("abc"));
  EXPECT_FALSE(file->Replace(std::string(5000, 'x')));
  struct rlimit before, small;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  small = {.rlim_cur = 5, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_FALSE(file->Replace("longer"));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(ReadWhole(path), "long");
  EXPECT_TRUE(file->Replace("longer"));
  EXPECT_EQ(file->size(), 6u);
  ASSERT_TRUE(file->Append(" still").ok());
  EXPECT_EQ(ReadWhole(path), "longer still");
}

TEST(AppendFile, SaysWhenItWasRemoved) {
  const TemporaryFolder folder;
  Result<AppendFile> file = AppendFile::Open(folder.path() + "/file", false);
  ASSERT_TRUE(file.ok());
  EXPECT_FALSE(file->IsRemoved());
  ASSERT_TRUE(RemoveFile(folder.path() + "/file").ok());
  EXPECT_TRUE(file->IsRemoved());
}

// With the default action of SIGXFSZ, a write beyond the size limit kills the program. Our writes
// must not.
TEST(QuietSizeLimit, OurWriteDoesNotKillTheProgram) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  EXPECT_EXIT(
      {
        const FullDisk full(10);
        ::signal(SIGXFSZ, SIG_DFL);
        Result<AppendFile> file = AppendFile::Open(path, false);
        const bool refused = file.ok() && !file->Append("too long for it\n").ok() &&
                             !WriteFileAtomically(path, "too long for it\n").ok();
        sigset_t pending;
        ::sigpending(&pending);
        ::_exit(refused && !::sigismember(&pending, SIGXFSZ) ? 7 : 8);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST(AppendFile, RefusalsAreErrors) {
  const TemporaryFolder folder;
  EXPECT_EQ(AppendFile::Open(folder.path(), true).status().message(),
            folder.path() + ": cannot open for writing: Is a directory");
  Result<AppendFile> full = AppendFile::Open("/dev/full", true);
  ASSERT_TRUE(full.ok());
  EXPECT_EQ(full->Append("x").message(), "/dev/full: cannot write: No space left on device");
  AppendFile closed;
  EXPECT_EQ(closed.Append("x").code(), ErrorCode::kInternal);
  EXPECT_EQ(closed.TruncateTo(0).code(), ErrorCode::kIo);
  EXPECT_EQ(closed.Sync().code(), ErrorCode::kIo);
}

TEST(AppendFile, MovingTransfersTheFile) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  Result<AppendFile> opened = AppendFile::Open(path, false);
  ASSERT_TRUE(opened.ok());
  AppendFile file(std::move(*opened));
  EXPECT_FALSE(opened->is_open());  // NOLINT: the state after a move is documented
  ASSERT_TRUE(file.Append("ab").ok());
  AppendFile other;
  other = std::move(file);
  ASSERT_TRUE(other.Append("c").ok());
  EXPECT_EQ(other.size(), 3u);
  EXPECT_EQ(ReadWhole(path), "abc");
}

TEST(WriteFileAtomically, WritesReplacesAndLeavesNothingElse) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  const std::string big(300000, 'b');
  for (const std::string& bytes : {std::string("first"), big, std::string()}) {
    ASSERT_TRUE(WriteFileAtomically(path, bytes).ok());
    EXPECT_TRUE(ReadWhole(path) == bytes);
    EXPECT_EQ(*ListDirectory(folder.path()), std::vector<std::string>{"file"});
  }
}

TEST(WriteFileAtomically, WritesPiecesOneBehindTheOther) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  ASSERT_TRUE(WriteFileAtomically(path, std::vector<std::string>{"one", "", "two"}).ok());
  EXPECT_EQ(MappedFile::Open(path)->bytes(), "onetwo");
  ASSERT_TRUE(WriteFileAtomically(path, std::vector<std::string>()).ok());
  EXPECT_EQ(MappedFile::Open(path)->bytes(), "");
}

TEST(WriteFileAtomically, AnErrorLeavesTheOldFileAndNothingElse) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("file", "old");
  {
    const FullDisk full(10);
    EXPECT_EQ(WriteFileAtomically(path, std::string(100, 'n')).message(),
              path + ": cannot write: File too large");
  }
  EXPECT_EQ(ReadWhole(path), "old");
  EXPECT_EQ(*ListDirectory(folder.path()), std::vector<std::string>{"file"});
}

TEST(WriteFileAtomically, ADirectoryInTheWayIsAnError) {
  const TemporaryFolder folder;
  ASSERT_TRUE(MakeDirectories(folder.path() + "/taken/full").ok());
  EXPECT_EQ(WriteFileAtomically(folder.path() + "/taken", "x").code(), ErrorCode::kIo);
  EXPECT_EQ(*ListDirectory(folder.path()), std::vector<std::string>{"taken"});
  const std::string none = folder.path() + "/none/file";
  EXPECT_EQ(WriteFileAtomically(none, "x").message(),
            none + ": cannot create a temporary file beside it: No such file or directory");
}

TEST(WriteFileAtomically, ModeIsWhatOpenWouldGive) {
  const TemporaryFolder folder;
  const mode_t old = ::umask(027);
  EXPECT_TRUE(WriteFileAtomically(folder.path() + "/file", "x").ok());
  EXPECT_EQ(::umask(old), 027u);
  EXPECT_EQ(Mode(folder.path() + "/file"), 0640u);
}

// The umask belongs to the whole process: if it were changed for a moment, a file that a training
// thread creates then would be writable for everybody.
TEST(WriteFileAtomically, DoesNotChangeTheUmask) {
  const TemporaryFolder folder;
  const int before = umask_calls;
  EXPECT_TRUE(WriteFileAtomically(folder.path() + "/file", "x").ok());
  EXPECT_EQ(umask_calls, before);
}

TEST(WriteFileAtomically, ManyWritersOfOneFileLeaveOneOfTheirTexts) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  std::vector<std::thread> writers;
  for (char c = 'a'; c < 'e'; ++c) {
    writers.emplace_back([&path, text = std::string(5000, c)] {
      for (int i = 0; i < 50; ++i) EXPECT_TRUE(WriteFileAtomically(path, text).ok());
    });
  }
  for (std::thread& writer : writers) writer.join();
  const std::string text = ReadWhole(path);
  EXPECT_EQ(text, std::string(5000, text.empty() ? '?' : text[0]));
  EXPECT_EQ(*ListDirectory(folder.path()), std::vector<std::string>{"file"});
}

}  // namespace
}  // namespace msprobe
