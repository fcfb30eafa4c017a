#include "engine/workers/worker_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <utility>

#include "engine/base/system_calls.h"
#include "engine/base/temporary_files.h"

namespace msprobe::workers {
namespace {

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// A pair of connected descriptors that other children do not inherit.
bool Connect(int (&ends)[2]) {
  return ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0;
}

}  // namespace

Result<WorkerProcess> WorkerProcess::Start(const std::vector<std::string>& words,
                                           const std::string& log) {
  int in[2], out[2];
  if (!Connect(in)) return IoError(words[0], "connect to"_t, errno);
  if (!Connect(out)) {
    const int error = errno;
    ::close(in[0]), ::close(in[1]);
    return IoError(words[0], "connect to"_t, error);
  }
  WorkerProcess worker;
  worker.input_ = in[0];
  worker.output_ = out[0];
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, in[1], 0);
  ::posix_spawn_file_actions_adddup2(&files, out[1], 1);
  ::posix_spawn_file_actions_addopen(&files, 2, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  // A group of its own: Ctrl-C reaches this process alone, which ends its workers.
  const sigset_t mask = SignalMaskOfChildren();
  ::posix_spawnattr_setsigmask(&attributes, &mask);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  const int error = ::posix_spawnp(&worker.pid_, words[0].c_str(), &files, &attributes,
                                   Pointers(words).data(), ::environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  ::close(in[1]), ::close(out[1]);
  if (error != 0) worker.pid_ = -1;
  if (error == ENOENT) return NotFound(words[0]).Expected("a program"_t);
  if (error != 0) return IoError(words[0], "run"_t, error);
  return worker;
}

WorkerProcess::WorkerProcess(WorkerProcess&& other) noexcept { *this = std::move(other); }

WorkerProcess& WorkerProcess::operator=(WorkerProcess&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  pid_ = std::exchange(other.pid_, -1);
  input_ = std::exchange(other.input_, -1);
  output_ = std::exchange(other.output_, -1);
  at_end_ = other.at_end_;
  buffer_ = std::move(other.buffer_);
  return *this;
}

WorkerProcess::~WorkerProcess() { Reset(); }

void WorkerProcess::Reset() {
  if (pid_ > 0) (void)End();
  if (input_ >= 0) ::close(input_);
  if (output_ >= 0) ::close(output_);
  input_ = output_ = -1;
}

Status WorkerProcess::Send(std::string_view line) {
  std::string text(line);
  text += '\n';
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t n = Uninterrupted(
        [&] { return ::send(input_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL); });
    if (n < 0) return IoError("a worker", "write to"_t, errno);
    sent += static_cast<size_t>(n);
  }
  return Status::Ok();
}

std::optional<std::string> WorkerProcess::TakeLine() {
  char bytes[65536];
  while (!at_end_ && buffer_.find('\n') == buffer_.npos) {
    const ssize_t n =
        Uninterrupted([&] { return ::recv(output_, bytes, sizeof(bytes), MSG_DONTWAIT); });
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (n <= 0) {
      at_end_ = true;
    } else {
      buffer_.append(bytes, static_cast<size_t>(n));
    }
  }
  const size_t end = buffer_.find('\n');
  if (end == buffer_.npos) return std::nullopt;
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  return line;
}

uint64_t WorkerProcess::resident_bytes() const {
  std::ifstream file(fmt::format("/proc/{}/statm", pid_));
  uint64_t all = 0, resident = 0;
  file >> all >> resident;
  return file ? resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

Message WorkerProcess::End() {
  if (pid_ <= 0) return "had not started"_t;
  // A process that crashes closes its output before it is gone: wait a moment for its own end.
  int status = 0;
  pid_t ended = 0;
  for (int i = 0; at_end_ && ended == 0 && i < 50; ++i) {
    ended = Uninterrupted([&] { return ::waitpid(pid_, &status, WNOHANG); });
    if (ended == 0) ::usleep(10000);
  }
  if (ended == 0) {
    ::kill(-pid_, SIGKILL);
    Uninterrupted([&] { return ::waitpid(pid_, &status, 0); });
  } else {
    ::kill(-pid_, SIGKILL);  // what it has started itself
  }
  pid_ = -1;
  if (WIFEXITED(status)) return "ended with exit code {}"_t(WEXITSTATUS(status));
  return "was ended by signal {} ({})"_t(WTERMSIG(status),
                                         std::string(::strsignal(WTERMSIG(status))));
}

}  // namespace msprobe::workers
