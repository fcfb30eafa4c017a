#include "engine/base/threads.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <system_error>
#include <thread>
#include <vector>

namespace msprobe {
namespace {

// Exit code of `body` in a forked child; a child that hangs is killed, with the result -1.
template <typename Body>
int ExitCodeOfChild(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::_exit(body());
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Whether every index below `count` is visited exactly once.
bool VisitsEachOnce(ThreadPool& pool, size_t count) {
  std::vector<std::atomic<int>> visits(count);
  pool.ParallelFor(count, [&](size_t i) { ++visits[i]; });
  for (const std::atomic<int>& n : visits) {
    if (n != 1) return false;
  }
  return true;
}

TEST(ThreadPool, VisitsEachIndexOnce) {
  for (const size_t threads : {0, 1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), std::max<size_t>(1, threads));
    for (const size_t count : {0, 1, 2, 3, 7, 8, 1000})
      EXPECT_TRUE(VisitsEachOnce(pool, count)) << threads << " threads, " << count;
  }
}

// Short loops end before a worker wakes: the next loop must not see remains of the last one.
TEST(ThreadPool, ManyShortLoops) {
  ThreadPool pool(4);
  for (size_t i = 0; i < 20000; ++i) ASSERT_TRUE(VisitsEachOnce(pool, 2 + i % 3)) << i;
}

TEST(ThreadPool, WhatTheBodyWroteIsThereAfterwards) {
  ThreadPool pool(4);
  std::vector<int> values(10000, 0);
  for (int round = 1; round <= 50; ++round) {
    pool.ParallelFor(values.size(), [&](size_t i) { values[i] += static_cast<int>(i); });
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], round * static_cast<int>(i));
  }
}

TEST(ThreadPool, AllThreadsTakePart) {
  ThreadPool pool(3);
  std::mutex mutex;
  std::set<std::thread::id> ids;
  // Each body waits for the others, so this ends only if three threads are in the loop.
  pool.ParallelFor(3, [&](size_t) {
    {
      std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
    }
    for (size_t here = 0; here < 3;) {
      std::this_thread::yield();
      std::lock_guard lock(mutex);
      here = ids.size();
    }
  });
  EXPECT_EQ(ids.size(), 3u);
  EXPECT_EQ(ids.count(std::this_thread::get_id()), 1u);
}

TEST(ThreadPool, ReturnsOnlyWhenTheSlowestIsDone) {
  ThreadPool pool(2);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> inside = 0;
  std::atomic<bool> worker_done = false;
  pool.ParallelFor(2, [&](size_t) {
    for (++inside; inside < 2;) std::this_thread::yield();  // each thread has one index
    if (std::this_thread::get_id() == caller) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    worker_done = true;
  });
  EXPECT_TRUE(worker_done);
}

TEST(ThreadPool, OneThreadWorksInOrderOnTheCaller) {
  ThreadPool pool(1);
  std::vector<size_t> order;
  pool.ParallelFor(5, [&](size_t i) { order.push_back(i); });
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 2, 3, 4}));
}

TEST(ThreadPool, LoopsInsideALoopRunOnTheirThread) {
  ThreadPool pool(3), other(2);
  std::atomic<int> visits = 0, elsewhere = 0;
  pool.ParallelFor(6, [&](size_t) {
    const std::thread::id here = std::this_thread::get_id();
    const auto body = [&](size_t) {
      ++visits;
      elsewhere += std::this_thread::get_id() != here;
    };
    pool.ParallelFor(5, body);
    other.ParallelFor(5, body);
  });
  EXPECT_EQ(visits, 60);
  EXPECT_EQ(elsewhere, 0);
  EXPECT_TRUE(VisitsEachOnce(pool, 100));  // the caller is outside of a loop again
}

TEST(ThreadPool, CallersTakeTurns) {
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&] {
      for (size_t i = 0; i < 500; ++i) wrong += !VisitsEachOnce(pool, 2 + i % 9);
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadPool, ALoopDuringAnotherLoopTakesNoIndexFromIt) {
  ThreadPool pool(2);
  std::atomic<bool> second_comes = false;
  std::vector<std::atomic<int>> visits(40);
  std::thread first([&] {
    pool.ParallelFor(visits.size(), [&](size_t i) {
      while (!second_comes) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the second loop starts
      ++visits[i];
    });
  });
  while (std::accumulate(visits.begin(), visits.end(), 0) == 0) {
    second_comes = true;
    std::this_thread::yield();
  }
  EXPECT_TRUE(VisitsEachOnce(pool, 40));
  first.join();
  for (const std::atomic<int>& n : visits) EXPECT_EQ(n, 1);
}

// A team of three threads that the test owns, not the pool.
void ThreeThreads(void (*work)(void*), void* context) {
  std::thread second(work, context), third(work, context);
  work(context);
  second.join();
  third.join();
}

TEST(ThreadPool, BorrowedTeamVisitsEachIndexOnce) {
  ThreadPool pool(2);
  pool.Borrow(ThreeThreads);
  for (const size_t count : {2, 3, 7, 1000}) {
    std::vector<std::atomic<int>> visits(count);
    pool.ParallelFor(count, [&](size_t i) { ++visits[i]; });
    for (const auto& n : visits) EXPECT_EQ(n, 1);
  }
}

TEST(ThreadPool, BorrowedTeamTakesPartAndInnerLoopsStay) {
  ThreadPool pool(2);
  pool.Borrow(ThreeThreads);
  std::mutex mutex;
  std::set<std::thread::id> seen;
  std::atomic<int> inner = 0;
  pool.ParallelFor(64, [&](size_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    pool.ParallelFor(4, [&](size_t) { ++inner; });
    std::lock_guard lock(mutex);
    seen.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(inner, 256);
  EXPECT_EQ(seen.size(), 3u);
}

TEST(ThreadPool, EndsWithoutEverHavingLooped) {
  for (int i = 0; i < 100; ++i) ThreadPool pool(4);
}

class ForkedPool : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "ThreadSanitizer does not follow threads begun after a fork amid others";
#endif
  }
};

TEST_F(ForkedPool, WorksInTheChild) {
  ThreadPool pool(3);
  ASSERT_TRUE(VisitsEachOnce(pool, 100));  // the parent has workers, which the child will lack
  const int code = ExitCodeOfChild([&] {
    for (int i = 0; i < 100; ++i) {
      if (!VisitsEachOnce(pool, 100)) return 1;
    }
    return 0;
  });
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(VisitsEachOnce(pool, 100));
}

TEST_F(ForkedPool, WorksInAGrandchild) {
  ThreadPool pool(3);
  ASSERT_TRUE(VisitsEachOnce(pool, 10));
  const int code = ExitCodeOfChild([&] {
    if (!VisitsEachOnce(pool, 10)) return 1;
    return ExitCodeOfChild([&] { return VisitsEachOnce(pool, 10) ? 0 : 2; });
  });
  EXPECT_EQ(code, 0);
}

TEST_F(ForkedPool, CanBeDestroyedInTheChild) {
  auto pool = std::make_unique<ThreadPool>(3);
  ASSERT_TRUE(VisitsEachOnce(*pool, 10));
  const int code = ExitCodeOfChild([&] {
    pool.reset();
    return 0;
  });
  EXPECT_EQ(code, 0);
}

// A fork can happen during another thread's loop; its locks are then held in the child.
TEST_F(ForkedPool, WorksWhenForkedAmidALoop) {
  ThreadPool pool(3);
  std::atomic<bool> stop = false;
  std::thread busy([&] {
    while (!stop) pool.ParallelFor(50, [](size_t) { std::this_thread::yield(); });
  });
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(ExitCodeOfChild([&] { return VisitsEachOnce(pool, 20) ? 0 : 1; }), 0);
  stop = true;
  busy.join();
}

// The first loops of a child may come from several threads at once.
TEST_F(ForkedPool, FirstLoopsFromSeveralThreads) {
  ThreadPool pool(3);
  ASSERT_TRUE(VisitsEachOnce(pool, 10));
  for (int i = 0; i < 50; ++i) {
    const int code = ExitCodeOfChild([&] {
      std::atomic<int> waiting = 4, wrong = 0;
      std::vector<std::thread> callers;
      for (int t = 0; t < 4; ++t) {
        callers.emplace_back([&] {
          for (--waiting; waiting > 0;) {
          }
          wrong += !VisitsEachOnce(pool, 20);
        });
      }
      for (std::thread& caller : callers) caller.join();
      return wrong.load();
    });
    ASSERT_EQ(code, 0);
  }
}

// A limit on threads or memory must not end the training run.
TEST(ThreadPool, WorksWhereNoThreadCanBeMade) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs the memory that this test takes away";
#endif
  const int code = ExitCodeOfChild([] {
    std::vector<std::thread> idle;
    idle.reserve(100);
    const rlimit nothing_more{0, 0};  // no new stack can be mapped
    if (::setrlimit(RLIMIT_AS, &nothing_more) != 0) return 3;
    try {
      while (idle.size() < 100) idle.emplace_back(::pause);
      return 2;  // the limit has no effect here: the test would prove nothing
    } catch (const std::system_error&) {
    }
    ThreadPool pool(3);
    ::_exit(VisitsEachOnce(pool, 100) && VisitsEachOnce(pool, 100) ? 0 : 1);
  });
  EXPECT_EQ(code, 0);
}

TEST(ThreadPool, DefaultHasAsManyThreadsAsAskedFor) {
  // In new processes, because a process reads the number only once.
  const auto threads_with = [](const char* wanted) {
    return ExitCodeOfChild([&] {
      wanted ? ::setenv("MSPROBE_THREADS", wanted, 1) : ::unsetenv("MSPROBE_THREADS");
      ThreadPool& pool = ThreadPool::Default();
      if (&pool != &ThreadPool::Default() || !VisitsEachOnce(pool, 100)) return 200;
      return static_cast<int>(pool.threads());
    });
  };
  EXPECT_EQ(threads_with("3"), 3);
  EXPECT_EQ(threads_with("1"), 1);
  cpu_set_t cores;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(cores), &cores), 0);
  EXPECT_EQ(threads_with(nullptr), CPU_COUNT(&cores));
  for (const char* nothing : {"", "0", "-2", "many"})
    EXPECT_EQ(threads_with(nothing), CPU_COUNT(&cores)) << nothing;
}

}  // namespace
}  // namespace msprobe
