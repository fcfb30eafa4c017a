#include "capture/devices/drain_thread.h"

#include <Python.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <utility>

#include "capture/python/py_ref.h"

namespace msprobe::capture {

struct DrainThread::State {
  std::mutex mutex;
  std::condition_variable wake;
  bool quit = false;

  void Run(const std::function<void()>& work) {
    constexpr auto kBetween = std::chrono::milliseconds(100);
    std::unique_lock lock(mutex);
    while (!wake.wait_for(lock, kBetween, [&] { return quit; })) {
      lock.unlock();
      const PyGILState_STATE gil = PyGILState_Ensure();
      // Stop may have been called while this thread waited for the GIL.
      lock.lock();
      const bool wanted = !quit;
      lock.unlock();
      if (wanted) work();
      PyGILState_Release(gil);
      lock.lock();
    }
  }
};

void DrainThread::Start(std::function<void()> work) {
  if (state_ != nullptr) return;
  auto state = std::make_shared<State>();
  try {
    thread_ = std::thread([state, work = std::move(work)] { state->Run(work); });
    state_ = std::move(state);
  } catch (const std::system_error&) {
    // The system gives no thread: recorded calls ask all the same.
  }
}

void DrainThread::Stop() {
  if (state_ == nullptr) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->quit = true;
  }
  state_->wake.notify_all();
  state_ = nullptr;
  // Another thread may start the next one as soon as it has the GIL: a backward pass of a device
  // that still runs. A thread must not be put in the place of one that is joined.
  std::thread ending = std::move(thread_);
  if (ending.get_id() == std::this_thread::get_id()) return ending.detach();
  const ReleasedGil released;
  ending.join();
}

void DrainThread::Abandon() {
  state_ = nullptr;
  if (thread_.joinable()) thread_.detach();
}

}  // namespace msprobe::capture
