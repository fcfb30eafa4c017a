#include "capture/devices/late_decisions.h"

#include <Python.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "capture/python/py_ref.h"

namespace msprobe::capture {
namespace {

bool HaveArrived(const LateTensors& needs) {
  return std::ranges::all_of(needs, [](const auto& each) { return each->arrived; });
}

}  // namespace

bool LateDecisions::Knows(const LateTensors& needs) const {
  return waiting_.empty() && runner_ == std::thread::id() && HaveArrived(needs);
}

void LateDecisions::Add(LateTensors needs, std::function<void()> decide) {
  if (Knows(needs)) return decide();
  waiting_.push_back({std::move(needs), std::move(decide)});
}

void LateDecisions::Run(bool give_up) {
  const std::thread::id here = std::this_thread::get_id();
  // Who gives up needs all decisions; else the thread that makes them makes those that follow, too.
  while (give_up && runner_ != std::thread::id() && runner_ != here) {
    const ReleasedGil released;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  if (runner_ != std::thread::id()) return;
  struct Running {
    explicit Running(std::thread::id* place) : runner(place) {
      *runner = std::this_thread::get_id();
    }
    ~Running() { *runner = std::thread::id(); }
    std::thread::id* runner;
  };
  const Running running(&runner_);
  while (!waiting_.empty() && (give_up || HaveArrived(waiting_.front().needs))) {
    const Waiting first = std::move(waiting_.front());
    waiting_.pop_front();
    first.decide();
  }
}

}  // namespace msprobe::capture
