// Results that threads make in any order are used in the order of their indices.
//
//   OrderedParts<std::string> parts(8, [&](std::string* part) { return file.Append(*part); });
//   pool.ParallelFor(n, [&](size_t i) {
//     std::string part = parts.Take();      // one that was used before: its memory is warm
//     Make(i, &part);
//     parts.Put(i, std::move(part));
//   });
//   MSPROBE_RETURN_IF_ERROR(parts.status());
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/base/status.h"

namespace msprobe {

// The thread that puts the next part in order calls `use` for it, and then for all following parts
// that are ready; so no thread waits for its turn. At most `most` parts are kept ready: a thread
// with one more waits. Indices are 0, 1, 2, ...; each is put once, and threads get them in about
// this order. After `use` has failed, the other parts are dropped.
template <typename Part>
class OrderedParts {
 public:
  OrderedParts(size_t most, std::function<Status(Part*)> use) : most_(most), use_(std::move(use)) {}

  Part Take() {
    std::lock_guard lock(mutex_);
    if (free_.empty()) return Part();
    Part part = std::move(free_.back());
    free_.pop_back();
    return part;
  }

  void Put(size_t index, Part part) {
    std::unique_lock lock(mutex_);
    // The next part never waits: all others wait for it to be used.
    room_.wait(lock, [&] { return ready_.size() < most_ || index == next_; });
    ready_.emplace(index, std::move(part));
    if (using_) return;
    using_ = true;
    for (auto first = ready_.begin(); first != ready_.end() && first->first == next_;
         first = ready_.begin()) {
      Part mine = std::move(first->second);
      ready_.erase(first);
      if (status_.ok()) {
        lock.unlock();
        Status status = use_(&mine);
        lock.lock();
        if (!status.ok()) status_ = std::move(status);
      }
      ++next_;
      free_.push_back(std::move(mine));
      room_.notify_all();
    }
    using_ = false;
  }

  // The first error of `use`. To be called after all parts were put.
  Status status() const { return status_; }

 private:
  const size_t most_;
  const std::function<Status(Part*)> use_;
  std::mutex mutex_;
  std::condition_variable room_;
  std::map<size_t, Part> ready_;
  std::vector<Part> free_;
  size_t next_ = 0;
  bool using_ = false;
  Status status_;
};

}  // namespace msprobe
