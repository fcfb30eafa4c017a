// Decisions that need numbers of a device. Each is made when its numbers have come and all
// decisions before it are made, so the files are those that decisions at once would have given.
//
//   late.Add(needs, [&] { Decide(); });     // at once, where nothing is missing
//   late.Run();                             // now and then: those whose numbers have come
//   late.Run(/*give_up=*/true);             // no more numbers will come
#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "capture/devices/late_tensor.h"

namespace msprobe::capture {

// Needs the GIL. A decision may leave it to other threads: they do not make the ones that follow.
class LateDecisions {
 public:
  // Whether a decision that needs these tensors would be made at once.
  bool Knows(const LateTensors& needs) const;
  void Add(LateTensors needs, std::function<void()> decide);
  void Run(bool give_up = false);
  void Forget() { waiting_.clear(); }

 private:
  struct Waiting {
    LateTensors needs;
    std::function<void()> decide;
  };

  std::deque<Waiting> waiting_;
  std::thread::id runner_;  // the thread that makes decisions now
};

}  // namespace msprobe::capture
