// A small pool for data-parallel loops.
//
//   ThreadPool& pool = ThreadPool::Default();            // a worker per core but one
//   pool.ParallelFor(chunks, [&](size_t i) { Work(i); });  // the caller works too
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>

namespace msprobe {

// Threads start at the first ParallelFor, and start anew in a forked child. When the system refuses
// to start a thread, the others do the work. ParallelFor may be called from any thread; a call from
// inside a loop body runs on the calling thread alone. Bodies must not throw.
class ThreadPool {
 public:
  explicit ThreadPool(size_t threads);  // including the caller; 0 and 1 mean "no worker"
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // A function that runs `work(context)` on each thread of a team that another library owns, and on
  // the calling thread, and returns when all are done.
  using Team = void (*)(void (*work)(void*), void* context);
  // From now on, loops of this process run on that team, but not in a forked child. The team's
  // threads are awake: they wait in a busy loop for their owner's next loop, and would compete with
  // threads of ours for the cores. Each also has in its cache what it wrote last.
  void Borrow(Team team);

  void ParallelFor(size_t count, const std::function<void(size_t)>& body);
  // Runs both at the same time, or one after the other on one thread. What one of them throws is
  // thrown when both have ended.
  void Both(const std::function<void()>& one, const std::function<void()>& other);
  size_t threads() const { return threads_; }

  // The pool of the whole process. It has one thread for each core that the process may run on, or
  // as many as MSPROBE_THREADS says.
  static ThreadPool& Default();

 private:
  struct State;
  State& OfThisProcess();

  size_t threads_;
  std::atomic<State*> state_;
  std::atomic<Team> team_ = nullptr;
  std::atomic<int> team_process_ = 0;
};

}  // namespace msprobe
