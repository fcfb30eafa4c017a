// The line on a terminal that says how far a long piece of work is.
//
//   ProgressLine line(STDERR_FILENO, 80);
//   line.Show("comparing tensors", 45, 100);   // cheap: call it often
//   // comparing tensors: 45%, 12 s left
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "engine/base/messages/message.h"

namespace msprobe::cli {

// Thread-safe. A thread of its own draws the newest text, at most ten times a second and not in the
// first tenth of a second, so that short work shows nothing.
class ProgressLine {
 public:
  ProgressLine(int fd, int width) : fd_(fd), width_(width) {}
  ~ProgressLine();  // clears the line
  ProgressLine(const ProgressLine&) = delete;

  // With `all`, the line also has per cent and, after a second, the time left. Both count from the
  // first call with this label.
  void Show(std::string_view label, uint64_t done = 0, uint64_t all = 0);
  // Removes the line. It returns with the next Show.
  void Clear();

 private:
  using Clock = std::chrono::steady_clock;
  void Draw();
  std::string Text() const;

  const int fd_, width_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string label_;
  uint64_t done_ = 0, all_ = 0, first_done_ = 0;
  Clock::time_point started_;
  bool pending_ = false, shown_ = false, ended_ = false;
  std::thread thread_;  // started by the first Show
};

// "45%, 12 s left": `done` of `all`, of which the part since `first_done` took `seconds`.
Message EstimateText(uint64_t first_done, uint64_t done, uint64_t all, double seconds);

}  // namespace msprobe::cli
