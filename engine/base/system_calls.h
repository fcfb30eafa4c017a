// Helpers that belong around every system call that writes.
//
//   const int fd = Uninterrupted([&] { return ::open(path, O_WRONLY | O_CREAT, 0666); });
//   const QuietSizeLimit quiet(needs_quiet);   // on the stack, around write(2)
#pragma once

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

namespace msprobe {

// Repeats the call while a signal interrupts it. Not for close(2): Linux has closed the file then.
template <typename Call>
auto Uninterrupted(Call&& call) {
  while (true) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

// Returns 0 or the errno of close(2). File systems on a network report lost writes there.
inline int CloseFile(int fd) { return ::close(fd) == 0 || errno == EINTR ? 0 : errno; }

// A write beyond RLIMIT_FSIZE fails with EFBIG and sends SIGXFSZ, which kills a program that has
// not changed the default action of the signal. Python ignores the signal. In a program that has
// set the default action again, this class blocks the signal on this thread during our own write,
// and discards it when the write caused it.
class QuietSizeLimit {
 public:
  static bool IsNeeded() {
    struct sigaction action;
    return ::sigaction(SIGXFSZ, nullptr, &action) == 0 && action.sa_handler == SIG_DFL;
  }
  explicit QuietSizeLimit(bool needed) : needed_(needed) {
    if (!needed_) return;
    ::sigemptyset(&signal_);
    ::sigaddset(&signal_, SIGXFSZ);
    ::sigset_t pending;
    was_pending_ = ::sigpending(&pending) == 0 && ::sigismember(&pending, SIGXFSZ) == 1;
    ::pthread_sigmask(SIG_BLOCK, &signal_, &old_);
  }
  ~QuietSizeLimit() {
    if (!needed_) return;
    const int error = errno;
    const struct timespec at_once {};
    if (!was_pending_) (void)::sigtimedwait(&signal_, nullptr, &at_once);
    ::pthread_sigmask(SIG_SETMASK, &old_, nullptr);
    errno = error;
  }
  QuietSizeLimit(const QuietSizeLimit&) = delete;

 private:
  const bool needed_;
  bool was_pending_ = false;
  sigset_t signal_{}, old_{};
};

}  // namespace msprobe
