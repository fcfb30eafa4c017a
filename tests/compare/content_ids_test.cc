#include "engine/compare/model/content_ids.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "engine/base/threads.h"
#include "engine/compare/model/record_keys.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::Numbers;
using test::Tensor;

Tensor Printed(int i) { return Numbers(1, -1, 0, 5).Print("print" + std::to_string(i)); }

// Calls that each return what the next one takes.
Dump ChainFrom(int first, int calls) {
  DumpBuilder b;
  for (int i = first; i < first + calls; ++i) {
    b.Call("Torch.f." + std::to_string(i) + ".forward").In(Printed(i)).Out(Printed(i + 1));
    if (i % 7 == 0) b.In(Tensor().NoStats()).Value("n", "int", std::to_string(i));
  }
  return b.Take();
}

TEST(ContentIds, EqualContentsHaveEqualNumbers) {
  const Dump target = ChainFrom(0, 300), golden = ChainFrom(100, 300);
  ThreadPool pool(3);
  const ContentIds ids(target, golden, pool);
  std::vector<uint64_t> key_of(ids.size(), 0);
  for (const bool of_target : {true, false}) {
    const Dump& dump = of_target ? target : golden;
    for (const Leaf& leaf : dump.leaves) {
      const int32_t id = ids.Of(of_target, leaf);
      const uint64_t key = leaf.kind == LeafKind::kTensor ? ContentKey(leaf) : 0;
      ASSERT_EQ(id < 0, key == 0) << leaf.name.view();
      if (id < 0) continue;
      ASSERT_LT(static_cast<size_t>(id), ids.size());
      if (key_of[id] == 0) key_of[id] = key;
      ASSERT_EQ(key_of[id], key) << leaf.name.view();
    }
  }
  // Each content has one number, and each number a content.
  const std::set<uint64_t> keys(key_of.begin(), key_of.end());
  EXPECT_EQ(keys.size(), 401u);
  EXPECT_EQ(ids.size(), 401u);
  EXPECT_EQ(keys.count(0), 0u);
}

TEST(ContentIds, ResultsAreToldFromArguments) {
  const Dump target = ChainFrom(0, 2), golden = ChainFrom(1, 2);
  ThreadPool pool(1);
  const ContentIds ids(target, golden, pool);
  for (size_t i = 0; i < target.leaves.size(); ++i) {
    const auto leaf = static_cast<int32_t>(i);
    const int32_t id = ids.Of(true, leaf);
    const bool result = target.leaves[i].slot == Slot::kOutput;
    EXPECT_EQ(ids.ResultOf(true, leaf), result ? id : -1);
    EXPECT_EQ(ids.ArgumentOf(true, leaf), result ? -1 : id);
  }
}

TEST(ContentIds, AnyNumberOfThreadsGivesTheSameNumbers) {
  constexpr int kCalls = 20000;  // more leaves than a thread takes at once
  const Dump target = ChainFrom(0, kCalls), golden = ChainFrom(5, kCalls);
  ThreadPool one(1), many(5);
  const ContentIds alone(target, golden, one), together(target, golden, many);
  ASSERT_EQ(alone.size(), together.size());
  for (size_t i = 0; i < target.leaves.size(); ++i)
    ASSERT_EQ(alone.Of(true, static_cast<int32_t>(i)), together.Of(true, static_cast<int32_t>(i)));
  for (size_t i = 0; i < golden.leaves.size(); ++i)
    ASSERT_EQ(alone.Of(false, static_cast<int32_t>(i)),
              together.Of(false, static_cast<int32_t>(i)));
}

TEST(ContentIds, DumpsWithoutTensorsHaveNone) {
  const Dump empty = DumpBuilder().Take(), plain = DumpBuilder().Call("Torch.f.0.forward").Take();
  ThreadPool pool(2);
  const ContentIds ids(empty, plain, pool);
  EXPECT_EQ(ids.size(), 0u);
  EXPECT_FALSE(ContentSet(ids).Has(-1));
}

TEST(ContentIds, ASetHoldsWhatWasInserted) {
  const Dump target = ChainFrom(0, 3), golden = ChainFrom(0, 1);
  ThreadPool pool(1);
  const ContentIds ids(target, golden, pool);
  ContentSet set(ids);
  set.Insert(-1);
  set.Insert(1);
  EXPECT_TRUE(set.Has(1));
  EXPECT_FALSE(set.Has(0));
  EXPECT_FALSE(set.Has(-1));
}

}  // namespace
}  // namespace msprobe::compare
