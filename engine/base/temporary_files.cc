#include "engine/base/temporary_files.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/base/system_calls.h"

namespace msprobe {
namespace {

struct Registry {
  std::mutex
      mutex;  // the thread that ends the program never unlocks it: no file is made after that
  std::set<std::string> paths;
  sigset_t mask_before{};
};

// Never destroyed: other threads may use it while the program exits.
Registry& TheRegistry() {
  static auto* registry = new Registry;
  return *registry;
}

// False in a training, where a file costs no more than its system calls.
std::atomic<bool> is_used{false};

[[noreturn]] void EndBy(int signal) {
  (void)::signal(signal, SIG_DFL);
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  (void)::raise(signal);
  ::_exit(128 + signal);  // the first process of a container is not ended by its own signal
}

void WaitForSignal(const sigset_t& signals, const std::function<void(int)>& last_words) {
  int signal = 0;
  while (::sigwait(&signals, &signal) != 0) {
  }
  Registry& registry = TheRegistry();
  registry.mutex.lock();
  for (const std::string& path : registry.paths) ::unlink(path.c_str());
  last_words(signal);
  EndBy(signal);
}

}  // namespace

void RemoveTemporaryFilesOnSignals(std::function<void(int signal)> last_words) {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action;
    if (::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_DFL)
      ::sigaddset(&signals, signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &signals, &TheRegistry().mask_before);
  is_used = true;
  try {
    std::thread(WaitForSignal, signals, std::move(last_words)).detach();
  } catch (const std::system_error&) {
    // No thread can be started: the signals end the program as they always did.
    is_used = false;
    ::pthread_sigmask(SIG_SETMASK, &TheRegistry().mask_before, nullptr);
  }
}

sigset_t SignalMaskOfChildren() {
  if (is_used) return TheRegistry().mask_before;
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return mask;
}

int CreateTemporaryFile(const std::string& path) {
  const auto create = [&] {
    return Uninterrupted(
        [&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
  };
  if (!is_used) return create();
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const int fd = create();
  if (fd >= 0) registry.paths.insert(path);
  return fd;
}

void ForgetTemporaryFile(const std::string& path) {
  if (!is_used) return;
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  registry.paths.erase(path);
}

}  // namespace msprobe
