// Counts what happens, and keeps the clocks: a discrete-event simulation. The clock of the host
// runs with the CPU time of the threads of the program outside of the simulator, plus a cost for
// each launch. Each stream has a clock of its own: a kernel begins when the host has launched it
// and the stream is free. A wait for the device sets the clock of the host forward, and is counted.
// So neither the time that the CPU needs for the kernels nor other programs of this machine change
// the result much.
//
// With SIMNPU_ASYNC=1 the kernels really run later, in a thread, each after a delay: a program that
// reads a result too early reads what was there before.
#pragma once

#include <ATen/ATen.h>
#include <pybind11/pybind11.h>
#include <time.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "settings.h"

namespace simnpu {

using at::Tensor;

inline double ThreadTime() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

struct Event {
  int device, stream;
  double time = 0;      // when it comes to pass, on the device's clock
  uint64_t ticket = 0;  // of the queue
};

inline thread_local int current_device = 0;
inline thread_local std::map<int, int> current_stream;  // of each device; 0: the default stream
inline thread_local int depth = 0;
inline thread_local double left_at = -1;

// What happened, the clocks, and the queue of SIMNPU_ASYNC.
class Simulator {
 public:
  Costs costs;

  // ---- what is counted
  struct Counts {
    std::map<std::string, int64_t> kernels, syncs, copies;
  };
  Counts counts;
  std::vector<std::string> trace;
  bool tracing = false;
  int64_t overflows = 0;
  bool watches_overflow = false;

  // ---- the clocks
  double host = 0;
  double busy = 0;                        // the sum of what kernels and copies cost
  std::vector<std::vector<double>> ends;  // [device][stream]

  Simulator() : ends(kDevices, std::vector<double>(1, 0.0)) {
    if (kAsync) worker_ = std::thread([this] { Work(); });
  }

  // Something that the device does: `run` is called now, or later by the worker.
  void Submit(int device, double cost, std::function<void()> run) {
    Charge(device, cost);
    Enqueue(std::move(run), kDelay);
  }
  void Charge(int device, double cost) {
    const std::lock_guard lock(mutex);
    host += costs.launch, busy += cost;
    double& end = ends[device][current_stream[device]];
    end = std::max(end, host) + cost;
  }
  void Enqueue(std::function<void()> run, double delay) {
    if (!kAsync) return run();
    const std::lock_guard lock(queue_mutex_);
    queue_.push_back({std::move(run), delay});
    ++pushed_;
    wake_.notify_all();
  }
  uint64_t ticket() {
    const std::lock_guard lock(queue_mutex_);
    return pushed_;
  }
  bool IsDone(uint64_t ticket) {
    const std::lock_guard lock(queue_mutex_);
    return done_ >= ticket;
  }
  void WaitFor(uint64_t ticket) {
    if (!kAsync) return;
    std::string error;
    {
      std::optional<pybind11::gil_scoped_release> released;
      if (PyGILState_Check() != 0) released.emplace();
      std::unique_lock lock(queue_mutex_);
      wake_.wait(lock, [&] { return done_ >= ticket; });
      error = std::exchange(error_, "");
    }
    TORCH_CHECK(error.empty(), "a kernel of the NPU failed earlier: ", error);
  }

  // The host waits until the device's clock is at `time`.
  void Wait(const std::string& why, double time, uint64_t ticket) {
    WaitFor(ticket);
    const std::lock_guard lock(mutex);
    ++counts.syncs[why];
    if (tracing) trace.push_back("SYNC " + why);
    host = std::max(host, time);
    Land(time);
  }
  void WaitForDevice(int device, const std::string& why) { Wait(why, End(device), ticket()); }
  double End(int device) {
    const std::lock_guard lock(mutex);
    return *std::max_element(ends[device].begin(), ends[device].end());
  }
  double EndOfStream(int device, int stream) {
    const std::lock_guard lock(mutex);
    return ends[device][stream];
  }
  bool HasPassed(const Event& event) {
    const std::lock_guard lock(mutex);
    host += costs.query;
    const bool passed = host >= event.time && (!kAsync || IsDone(event.ticket));
    if (passed) Land(event.time);
    return passed;
  }

  // A copy to pinned memory whose bytes arrive when somebody has waited for it.
  void LandLater(double time, Tensor to, Tensor bytes) {
    const std::lock_guard lock(mutex);
    landing_.push_back({time, std::move(to), std::move(bytes)});
  }

  void Count(std::map<std::string, int64_t>& which, const std::string& name) {
    const std::lock_guard lock(mutex);
    ++which[name];
    if (tracing) trace.push_back(name);
  }

  std::mutex mutex;

 private:
  struct Landing {
    double time;
    Tensor to, bytes;
  };
  struct Item {
    std::function<void()> run;
    double delay;
  };

  void Land(double until) {
    const at::DisableRecordFunctionGuard unseen;
    std::erase_if(landing_, [&](Landing& each) {
      if (each.time > until) return false;
      each.to.copy_(each.bytes);
      return true;
    });
  }

  void Work() {
    for (;;) {
      Item item;
      {
        std::unique_lock lock(queue_mutex_);
        wake_.wait(lock, [&] { return !queue_.empty(); });
        item = std::move(queue_.front());
        queue_.pop_front();
      }
      if (item.delay > 0)
        std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(item.delay));
      std::string error;
      try {
        item.run();
      } catch (const std::exception& e) {
        error = e.what();
      }
      item.run = nullptr;
      const std::lock_guard lock(queue_mutex_);
      if (error_.empty()) error_ = error;
      ++done_;
      wake_.notify_all();
    }
  }

  std::vector<Landing> landing_;
  std::mutex queue_mutex_;
  std::condition_variable wake_;
  std::deque<Item> queue_;
  uint64_t pushed_ = 0, done_ = 0;
  std::string error_;
  std::thread worker_;
};

inline Simulator& Sim() {
  static Simulator& sim = *new Simulator;
  return sim;
}

// While one exists, the time of this thread is the simulator's, not the program's.
class Inside {
 public:
  Inside() {
    if (depth++ > 0 || left_at < 0) return;
    const std::lock_guard lock(Sim().mutex);
    Sim().host += ThreadTime() - left_at;
  }
  ~Inside() {
    if (--depth == 0) left_at = ThreadTime();
  }
};

}  // namespace simnpu
