#include "cli/command_line/progress_line.h"

#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "engine/base/system_calls.h"
#include "engine/compare/report/text_layout.h"

namespace msprobe::cli {
namespace {

constexpr std::chrono::milliseconds kBetweenDrawings{100};
constexpr std::string_view kEmptyLine = "\r\x1b[K";

void Write(int fd, std::string_view text) {
  // A terminal that is gone is no reason to end the work.
  (void)Uninterrupted([&] { return ::write(fd, text.data(), text.size()); });
}

}  // namespace

Message EstimateText(uint64_t first_done, uint64_t done, uint64_t all, double seconds) {
  done = std::min(done, all);
  const double part = all == 0 ? 1 : static_cast<double>(done) / static_cast<double>(all);
  Message text = "{}%"_t(static_cast<int>(100 * part));
  if (seconds < 1 || done <= first_done || done == all) return text;
  const double left =
      seconds * static_cast<double>(all - done) / static_cast<double>(done - first_done);
  constexpr double kMinute = 60, kHour = 3600;
  return Message::Joined({text, left < 1.5 * kMinute ? "{:.0f} s left"_t(std::max(left, 1.0))
                                : left < 1.5 * kHour ? "{:.0f} min left"_t(left / kMinute)
                                                     : "{:.1f} h left"_t(left / kHour)},
                         ", ");
}

ProgressLine::~ProgressLine() {
  Clear();
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ProgressLine::Show(std::string_view label, uint64_t done, uint64_t all) {
  const std::lock_guard lock(mutex_);
  if (label != label_ || all != all_) {
    label_ = label;
    all_ = all;
    first_done_ = done;
    started_ = Clock::now();
  }
  done_ = done;
  if (!std::exchange(pending_, true)) changed_.notify_all();
  if (thread_.joinable() || ended_) return;
  try {
    thread_ = std::thread([this] { Draw(); });
  } catch (const std::system_error&) {
    ended_ = true;  // no thread can be started: the work goes on without this line
  }
}

void ProgressLine::Clear() {
  const std::lock_guard lock(mutex_);
  pending_ = false;
  if (std::exchange(shown_, false)) Write(fd_, kEmptyLine);
}

void ProgressLine::Draw() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return pending_ || ended_; });
    if (changed_.wait_for(lock, kBetweenDrawings, [&] { return ended_; })) return;
    if (!std::exchange(pending_, false)) continue;  // cleared meanwhile
    Write(fd_, std::string(kEmptyLine) + Text());
    shown_ = true;
  }
}

std::string ProgressLine::Text() const {
  const std::string estimate =
      all_ == 0
          ? ""
          : ": " + EstimateText(first_done_, done_, all_,
                                std::chrono::duration<double>(Clock::now() - started_).count())
                       .Shown();
  const int room = std::max(width_, 20) - 1 - compare::Columns(estimate);
  return compare::CutMiddle(compare::Clean(label_), room) + estimate;
}

}  // namespace msprobe::cli
