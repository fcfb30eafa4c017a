// Simulates a full disk: a limit on file sizes also makes write(2) fail halfway.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

namespace msprobe {

// While an object of this class exists, files cannot grow beyond `bytes`.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : old_handler_(::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &old_), 0);
    const rlimit limit{bytes, old_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FullDisk() {
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &old_), 0);
    ::signal(SIGXFSZ, old_handler_);
  }
  FullDisk(const FullDisk&) = delete;

 private:
  rlimit old_{};
  sighandler_t old_handler_;
};

}  // namespace msprobe
