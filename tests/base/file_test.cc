// Reading whole files, paths and folders. Writing is tested in file_write_test.cc.
#include "engine/base/file.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <utility>

#include "tests/base/temporary_folder.h"

namespace msprobe {
namespace {

TEST(MappedFile, HasTheBytesOfTheFile) {
  const TemporaryFolder folder;
  const std::string bytes("a\0b\xff\n", 5);
  const std::string path = folder.Write("file", bytes);
  const Result<MappedFile> file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->bytes(), bytes);
  EXPECT_EQ(file->path(), path);
}

TEST(MappedFile, LongerThanAPage) {
  const TemporaryFolder folder;
  std::string bytes(100001, 'x');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 + i / 256);
  const Result<MappedFile> file = MappedFile::Open(folder.Write("file", bytes));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->bytes() == bytes);
}

TEST(MappedFile, EmptyFileHasEmptyBytes) {
  const TemporaryFolder folder;
  const Result<MappedFile> file = MappedFile::Open(folder.Write("empty", ""));
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->bytes(), "");
}

TEST(MappedFile, MovesAndOutlivesItsName) {
  const TemporaryFolder folder;
  const std::string a = folder.Write("a", "first"), b = folder.Write("b", "second");
  MappedFile moved;
  EXPECT_EQ(moved.bytes(), "");
  {
    Result<MappedFile> file = MappedFile::Open(a);
    ASSERT_TRUE(file.ok());
    moved = std::move(*file);
  }
  std::filesystem::remove(a);
  EXPECT_EQ(moved.bytes(), "first");
  Result<MappedFile> other = MappedFile::Open(b);
  ASSERT_TRUE(other.ok());
  moved = std::move(*other);
  EXPECT_EQ(moved.bytes(), "second");
  const MappedFile constructed(std::move(moved));
  EXPECT_EQ(constructed.bytes(), "second");
  EXPECT_EQ(constructed.path(), b);
}

TEST(MappedFile, AMissingFileIsNotFound) {
  const TemporaryFolder folder;
  const std::string file = folder.Write("file", "x");
  for (const std::string& path : {folder.path() + "/none", folder.path() + "/no/ne", file + "/x"})
    EXPECT_EQ(MappedFile::Open(path).status().message(), path + ": does not exist");
}

TEST(MappedFile, RefusesFilesThatAreNotRegular) {
  const TemporaryFolder folder;
  EXPECT_EQ(MappedFile::Open(folder.path()).status().message(),
            folder.path() + ": expected a regular file, found a directory");
  const std::string pipe = folder.path() + "/pipe";  // no writer: a blocking open hangs
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, std::string("/dev/zero")}) {
    const Status status = MappedFile::Open(path).status();
    EXPECT_EQ(status.code(), ErrorCode::kIo);
    EXPECT_EQ(status.message(), path + ": expected a regular file, found a device, pipe or socket");
  }
}

TEST(MappedFile, RefusesASocket) {
  const TemporaryFolder folder;
  sockaddr_un address{.sun_family = AF_UNIX};
  const std::string path = folder.path() + "/s";
  ASSERT_LT(path.size(), sizeof(address.sun_path));
  std::strcpy(address.sun_path, path.c_str());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_FALSE(MappedFile::Open(path).ok());
  ::close(fd);
}

TEST(MappedFile, LeavesNoDescriptorOpen) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("file", "x");
  const auto open_files = [] {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return std::distance(begin(files), end(files));
  };
  const auto before = open_files();
  const Result<MappedFile> file = MappedFile::Open(path);
  const Result<MappedFile> none = MappedFile::Open(folder.path());
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(open_files(), before);
}

TEST(MappedFile, UnmapsWhenDestroyed) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("mapped", "x");
  const auto mapped = [&] { return ReadWhole("/proc/self/maps").find(path) != std::string::npos; };
  {
    Result<MappedFile> file = MappedFile::Open(path);
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE(mapped());
    const MappedFile moved(std::move(*file));
    EXPECT_EQ(moved.bytes(), "x");
  }
  EXPECT_FALSE(mapped());
}

TEST(Folders, MakeDirectoriesMakesParentsAndAcceptsExistingOnes) {
  const TemporaryFolder folder;
  const std::string deep = folder.path() + "/a/b/c";
  EXPECT_TRUE(MakeDirectories(deep).ok());
  EXPECT_TRUE(IsDirectory(deep));
  EXPECT_TRUE(MakeDirectories(deep).ok());
  EXPECT_TRUE(MakeDirectories(deep + "/").ok());
  ASSERT_EQ(::symlink(deep.c_str(), (folder.path() + "/link").c_str()), 0);
  EXPECT_TRUE(MakeDirectories(folder.path() + "/link").ok());
}

TEST(Folders, MakeDirectoriesNamesTheFileInTheWay) {
  const TemporaryFolder folder;
  const std::string file = folder.Write("file", "x");
  for (const std::string& path : {file, file + "/below"}) {
    const Status status = MakeDirectories(path);
    EXPECT_EQ(status.code(), ErrorCode::kIo);
    EXPECT_EQ(status.message(), path + ": cannot create the directory: Not a directory");
  }
}

TEST(Folders, ListIsSortedAndWithoutDots) {
  const TemporaryFolder folder;
  for (const char* name : {"b", "a", ".hidden", "c/inside", "B"}) folder.Write(name, "");
  const Result<std::vector<std::string>> names = ListDirectory(folder.path());
  ASSERT_TRUE(names.ok());
  EXPECT_EQ(*names, (std::vector<std::string>{".hidden", "B", "a", "b", "c"}));
}

TEST(Folders, ListOfAPathThatIsNoFolder) {
  const TemporaryFolder folder;
  const std::string file = folder.Write("file", "x"), none = folder.path() + "/none";
  EXPECT_EQ(ListDirectory(none).status().message(), none + ": does not exist");
  EXPECT_EQ(ListDirectory(file).status().message(),
            file + ": cannot list the directory: Not a directory");
}

TEST(Folders, KindsOfPaths) {
  const TemporaryFolder folder;
  const std::string file = folder.Write("file", "x");
  EXPECT_TRUE(IsRegularFile(file));
  EXPECT_FALSE(IsDirectory(file));
  EXPECT_TRUE(IsDirectory(folder.path()));
  EXPECT_FALSE(IsRegularFile(folder.path()));
  EXPECT_FALSE(IsRegularFile("/dev/null"));
  EXPECT_FALSE(IsDirectory("/dev/null"));
  EXPECT_FALSE(IsDirectory(folder.path() + "/none"));
  EXPECT_FALSE(IsRegularFile(folder.path() + "/none"));
}

TEST(Paths, Join) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("/", "b"), "/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
}

TEST(Paths, BaseAndDirectoryName) {
  struct Case {
    std::string path, directory, base;
  };
  const Case cases[] = {
      {"a", ".", "a"},  {"a/b", "a", "b"},   {"a/b/", "a", "b"}, {"a/b///", "a", "b"},
      {"/a", "/", "a"}, {"/a/b", "/a", "b"}, {"./a", ".", "a"},  {"a/b/c.json", "a/b", "c.json"},
      {"/", "/", ""},   {"", ".", ""},       {"..", ".", ".."},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(DirectoryName(c.path), c.directory) << c.path;
    EXPECT_EQ(BaseName(c.path), c.base) << c.path;
  }
}

}  // namespace
}  // namespace msprobe
