#include "engine/base/threads.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace msprobe {
namespace {

thread_local bool inside_loop = false;

size_t AvailableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) return static_cast<size_t>(CPU_COUNT(&set));
  return std::max<size_t>(1, std::thread::hardware_concurrency());
}

// A loop on a borrowed team. The caller takes indices from the front, the others from the back:
// with two threads each has the half that a static schedule gives it.
struct TeamLoop {
  const std::function<void(size_t)>& body;
  const size_t count;
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<size_t> taken{0}, front{0}, back{0};

  void Drain() {
    const bool from_front = std::this_thread::get_id() == caller;
    inside_loop = true;
    while (taken.fetch_add(1, std::memory_order_relaxed) < count) {
      body(from_front ? front.fetch_add(1, std::memory_order_relaxed)
                      : count - 1 - back.fetch_add(1, std::memory_order_relaxed));
    }
    inside_loop = false;
  }
};

}  // namespace

struct ThreadPool::State {
  std::mutex one_loop;  // loops from different callers take turns
  std::mutex mutex;
  std::condition_variable wake, done;
  std::vector<std::thread> workers;
  const std::function<void(size_t)>* body = nullptr;
  std::atomic<size_t> next{0};
  size_t count = 0, busy = 0, generation = 0;
  bool quit = false;
  pid_t owner = ::getpid();

  void Start(size_t workers_wanted) {
    try {
      while (workers.size() < workers_wanted) workers.emplace_back([this] { Work(); });
    } catch (const std::system_error&) {
      // A limit on threads or memory: the caller takes every index that no worker takes.
    }
  }

  void Drain() {
    inside_loop = true;
    for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) (*body)(i);
    inside_loop = false;
  }

  void Work() {
    size_t seen = 0;
    std::unique_lock lock(mutex);
    while (true) {
      wake.wait(lock, [&] { return quit || generation != seen; });
      if (quit) return;
      seen = generation;
      if (body == nullptr) continue;  // woke after the loop had ended
      ++busy;
      lock.unlock();
      Drain();
      lock.lock();
      if (--busy == 0) done.notify_one();
    }
  }
};

ThreadPool::ThreadPool(size_t threads)
    : threads_(std::max<size_t>(1, threads)), state_(new State) {}

ThreadPool::~ThreadPool() {
  State* s = state_;
  if (s->owner != ::getpid()) return;  // a forked child owns no worker: joining would never end
  {
    std::lock_guard lock(s->mutex);
    s->quit = true;
  }
  s->wake.notify_all();
  for (std::thread& worker : s->workers) worker.join();
  delete s;
}

ThreadPool::State& ThreadPool::OfThisProcess() {
  State* s = state_;
  if (s->owner == ::getpid()) return *s;
  // After fork the workers are gone and the locks may be held for ever: leave the old state and
  // start anew. Several threads of the child may come here at once: one of them wins.
  State* fresh = new State;
  if (state_.compare_exchange_strong(s, fresh)) return *fresh;
  delete fresh;
  return *s;
}

void ThreadPool::ParallelFor(size_t count, const std::function<void(size_t)>& body) {
  if (threads_ == 1 || count <= 1 || inside_loop) {
    for (size_t i = 0; i < count; ++i) body(i);
    return;
  }
  if (const Team team = team_.load(); team != nullptr && team_process_ == ::getpid()) {
    TeamLoop loop{body, count};
    return team([](void* l) { static_cast<TeamLoop*>(l)->Drain(); }, &loop);
  }
  State& s = OfThisProcess();
  std::lock_guard turn(s.one_loop);
  {
    std::lock_guard lock(s.mutex);
    s.Start(threads_ - 1);
    s.body = &body;
    s.count = count;
    s.next.store(0, std::memory_order_relaxed);
    ++s.generation;
  }
  s.wake.notify_all();
  s.Drain();
  std::unique_lock lock(s.mutex);
  s.done.wait(lock, [&] { return s.busy == 0; });
  s.body = nullptr;  // not before: a worker may have taken an index and not yet read the body
}

void ThreadPool::Both(const std::function<void()>& one, const std::function<void()>& other) {
  std::array<std::exception_ptr, 2> failed;
  ParallelFor(failed.size(), [&](size_t i) {
    try {
      (i == 0 ? one : other)();
    } catch (...) {
      failed[i] = std::current_exception();
    }
  });
  for (const std::exception_ptr& each : failed) {
    if (each != nullptr) std::rethrow_exception(each);
  }
}

void ThreadPool::Borrow(Team team) {
  team_process_ = ::getpid();
  team_ = team;
}

ThreadPool& ThreadPool::Default() {
  // Never destroyed: worker threads may outlive static destructors at exit.
  static ThreadPool* pool = [] {
    const char* wanted = std::getenv("MSPROBE_THREADS");
    const long n = wanted ? std::strtol(wanted, nullptr, 10) : 0;
    return new ThreadPool(n > 0 ? static_cast<size_t>(n) : AvailableCores());
  }();
  return *pool;
}

}  // namespace msprobe
