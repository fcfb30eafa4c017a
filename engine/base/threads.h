// A small pool for data-parallel loops.
//
//   ThreadPool& pool = ThreadPool::Default();            // a worker per core but one
//   pool.ParallelFor(chunks, [&](size_t i) { Work(i); });  // the caller works too
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>

namespace msprobe {

// Threads start at the first ParallelFor and are started anew in a forked child; where the system
// gives no more threads, those there are do the work. ParallelFor may be called from any thread;
// calls from inside a loop body run on the calling thread. Bodies must not throw.
class ThreadPool {
 public:
  explicit ThreadPool(size_t threads);  // including the caller; 0 and 1 mean "no worker"
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Runs `work(context)` on each thread of a team that somebody else keeps, the caller among them,
  // and returns when all are done.
  using Team = void (*)(void (*work)(void*), void* context);
  // From now on loops of this process run on that team: its threads are awake (they wait for their
  // owner's next loop in a busy loop, and would compete with ours for the cores), and each finds
  // in its cache what it wrote there last. Not in a forked child.
  void Borrow(Team team);

  void ParallelFor(size_t count, const std::function<void(size_t)>& body);
  size_t threads() const { return threads_; }

  // Shared by the whole process: one thread per core this process may run on, or MSPROBE_THREADS of
  // them.
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
