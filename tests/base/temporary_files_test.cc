#include "engine/base/temporary_files.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "engine/base/atomic_file.h"
#include "engine/base/file.h"
#include "tests/base/temporary_folder.h"

namespace msprobe {
namespace {

using ::testing::ElementsAre;

// How a child ended that sends itself `signal` while it is writing a file in `folder`. `ignored`: a
// signal that it was started to ignore.
int StatusAfter(int signal, const std::string& folder, int ignored = 0) {
  const pid_t child = ::fork();
  if (child == 0) {
    // Tests that run in the background are started to ignore SIGINT, those of nohup SIGHUP.
    (void)::signal(signal, signal == ignored ? SIG_IGN : SIG_DFL);
    RemoveTemporaryFilesOnSignals([](int) {});
    Result<AtomicFile> kept = AtomicFile::Create(JoinPath(folder, "kept"));
    Result<AtomicFile> file = AtomicFile::Create(JoinPath(folder, "table.csv"));
    if (!kept.ok() || !file.ok() || !kept->Write({"whole"}).ok() || !kept->Commit().ok() ||
        !file->Write({"half"}).ok())
      ::_exit(3);
    (void)::kill(::getpid(), signal);
    // Blocked by the registry or ended by the signal; 4 if neither.
    for (int i = 0; i < 300 && signal != ignored; ++i) ::usleep(10000);
    ::_exit(signal == ignored && file->Commit().ok() ? 0 : 4);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

TEST(TemporaryFiles, ASignalLeavesNoneAndEndsTheProgram) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const TemporaryFolder folder;
    const int status = StatusAfter(signal, folder.path());
    ASSERT_TRUE(WIFSIGNALED(status)) << "exit code " << WEXITSTATUS(status);
    EXPECT_EQ(WTERMSIG(status), signal);
    EXPECT_THAT(*ListDirectory(folder.path()), ElementsAre("kept"));
  }
}

TEST(TemporaryFiles, AnIgnoredSignalStaysIgnored) {
  const TemporaryFolder folder;
  const int status = StatusAfter(SIGINT, folder.path(), SIGINT);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_THAT(*ListDirectory(folder.path()), ElementsAre("kept", "table.csv"));
}

TEST(TemporaryFiles, WithoutTheRequestNothingIsHandled) {
  const TemporaryFolder folder;
  const std::string path = JoinPath(folder.path(), "file.part");
  const int fd = CreateTemporaryFile(path);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(CreateTemporaryFile(path), -1) << "it exists";
  ::close(fd);
  ForgetTemporaryFile(path);
  EXPECT_THAT(*ListDirectory(folder.path()), ElementsAre("file.part"));
  const sigset_t mask = SignalMaskOfChildren();
  EXPECT_EQ(::sigismember(&mask, SIGINT), 0);
}

}  // namespace
}  // namespace msprobe
