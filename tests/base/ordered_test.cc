#include "engine/base/ordered.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/base/threads.h"

namespace msprobe {
namespace {

TEST(OrderedParts, AreUsedInOrderWhicheverThreadMakesThem) {
  for (const size_t threads : {1, 2, 7}) {
    std::vector<size_t> used;
    OrderedParts<size_t> parts(3, [&](size_t* part) {
      used.push_back(*part);
      return Status::Ok();
    });
    ThreadPool pool(threads);
    pool.ParallelFor(1000, [&](size_t i) {
      if (i % 7 == 0) std::this_thread::yield();
      parts.Put(i, i);
    });
    EXPECT_TRUE(parts.status().ok());
    ASSERT_EQ(used.size(), 1000u);
    for (size_t i = 0; i < used.size(); ++i) ASSERT_EQ(used[i], i) << threads << " threads";
  }
}

TEST(OrderedParts, TakeReturnsAUsedPartForReuse) {
  OrderedParts<std::vector<int>> parts(2, [](std::vector<int>*) { return Status::Ok(); });
  parts.Put(0, std::vector<int>(100));
  EXPECT_EQ(parts.Take().size(), 100u);
  EXPECT_EQ(parts.Take().size(), 0u);
}

TEST(OrderedParts, NothingIsUsedAfterAnError) {
  ThreadPool pool(3);
  std::atomic<int> uses = 0;
  OrderedParts<size_t> parts(3, [&](size_t* part) {
    ++uses;
    return *part == 4 ? Unsupported("full"_t) : Status::Ok();
  });
  pool.ParallelFor(100, [&](size_t i) { parts.Put(i, i); });
  EXPECT_EQ(parts.status().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(uses, 5);
}

}  // namespace
}  // namespace msprobe
