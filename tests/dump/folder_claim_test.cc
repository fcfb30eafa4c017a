#include "engine/dump/write/folder_claim.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/base/temporary_folder.h"

namespace msprobe::dump {
namespace {

// The folder that a new process gets; it inherits no claim.
std::string InAnotherProcess(const std::string& dump_path, const std::string& name) {
  int pipe_ends[2];
  EXPECT_EQ(::pipe(pipe_ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ForgetClaims();
    const std::string answer = ClaimFolder(dump_path, "step0", name);
    (void)!::write(pipe_ends[1], answer.data(), answer.size());
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  char answer[64];
  const ssize_t size = ::read(pipe_ends[0], answer, sizeof(answer));
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
  std::string text(answer, size > 0 ? static_cast<size_t>(size) : 0);
  return text == "proc" + std::to_string(child) ? "proc" : text;
}

TEST(FolderClaimTest, TheFirstProcessHasIt) {
  const TemporaryFolder temporary;
  const std::string path = temporary.path() + "/dump";
  EXPECT_EQ(ClaimFolder(path, "step0", "rank"), "rank");
  EXPECT_EQ(ClaimFolder(path, "step1", "rank"), "rank");  // and keeps it
  EXPECT_EQ(InAnotherProcess(path, "rank"), "proc");
  EXPECT_EQ(InAnotherProcess(path, "rank1"), "rank1");
  EXPECT_EQ(InAnotherProcess(path + "2", "rank"), "rank");
  EXPECT_EQ(ClaimFolder(path, "step0", "rank1"), "rank1");  // that process has ended
  ForgetClaims();
}

}  // namespace
}  // namespace msprobe::dump
