// A thread that asks now and then for numbers that have arrived. The recorded calls ask, too; but a
// program that waits for a device that hangs makes no more calls, and is killed: its last entries
// say where it hangs.
//
//   DrainThread drain;
//   drain.Start([&] { recording.TakeArrived(); });   // at the first tensor of a device
//   drain.Stop();                                     // before the recording ends
#pragma once

#include <functional>
#include <memory>
#include <thread>

namespace msprobe::capture {

// Needs the GIL.
class DrainThread {
 public:
  DrainThread() = default;
  ~DrainThread() { Abandon(); }
  DrainThread(const DrainThread&) = delete;
  DrainThread& operator=(const DrainThread&) = delete;

  // Calls `work`, which has the GIL, every 100 ms. Has no effect while a thread runs, or where the
  // system gives none.
  void Start(std::function<void()> work);
  // `work` is not called any more; it may call Stop itself. Other threads get the GIL meanwhile.
  void Stop();
  void Abandon();  // in a forked child, where the thread does not live

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace msprobe::capture
