// What every write of ours needs around the bare system call.
//
//   const int fd = Uninterrupted([&] { return ::open(path, O_WRONLY | O_CREAT, 0666); });
//   const QuietSizeLimit quiet(needs_quiet);   // on the stack, around write(2)
#pragma once

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

namespace msprobe {

// Calls again for as long as a signal interrupts. Not for close(2): Linux has closed the file.
template <typename Call>
auto Uninterrupted(Call&& call) {
  while (true) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

// 0 or the errno of close(2), in which disks beyond a network tell that a write did not arrive.
inline int CloseFile(int fd) { return ::close(fd) == 0 || errno == EINTR ? 0 : errno; }

// A write beyond RLIMIT_FSIZE answers EFBIG, but its SIGXFSZ kills a program first that left the
// signal at its default. Python ignores it; where a program went back to the default, it is held
// back on this thread for the time of our own write, and taken away when the write caused it.
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
