#include "engine/compare/align/call_index.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

namespace msprobe::compare {
namespace {

struct CallList {
  Dump dump;
  void Add(std::string_view api, int64_t call, Direction direction) {
    Record record;
    record.api = dump.arena.emplace_back(api);
    record.call = call;
    record.direction = direction;
    dump.records.push_back(record);
  }
};

TEST(CallIndex, FindsEveryCallAndTheFirstOfTwo) {
  constexpr int kApis = 100, kCalls = 30;
  CallList calls;
  for (int call = 0; call < kCalls; ++call) {
    for (int api = 0; api < kApis; ++api)
      for (const Direction direction : {Direction::kForward, Direction::kBackward})
        calls.Add("Torch.f" + std::to_string(api), call, direction);
  }
  const auto records = static_cast<int32_t>(calls.dump.records.size());
  for (int32_t i = 0; i < records; ++i) calls.dump.records.push_back(calls.dump.records[i]);
  const CallIndex index(calls.dump);
  for (int32_t i = 0; i < records; ++i) {
    const Record& r = calls.dump.records[i];
    ASSERT_EQ(index.Find(r.api, r.call, r.direction), i);
    ASSERT_EQ(index.Find(r.api, r.call, Direction::kParameterGrad), -1);
  }
  EXPECT_EQ(index.Find("Torch.f0", kCalls, Direction::kForward), -1);
  EXPECT_EQ(index.Find("Torch.f0", -1, Direction::kForward), -1);
  EXPECT_EQ(index.Find("Torch.g", 0, Direction::kForward), -1);
}

TEST(CallIndex, NumbersMayBeFarApart) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(),
                    kMost = std::numeric_limits<int64_t>::max();
  CallList calls;
  const int64_t numbers[] = {5, kMost, 0, kLeast, -1, 5, 1000};
  for (const int64_t number : numbers) calls.Add("Torch.f", number, Direction::kForward);
  calls.Add("Torch.g", kMost, Direction::kForward);
  const CallIndex index(calls.dump);
  for (int32_t i = 0; i < 7; ++i)
    EXPECT_EQ(index.Find("Torch.f", numbers[i], Direction::kForward), i == 5 ? 0 : i);
  for (const int64_t other : {int64_t{1}, int64_t{6}, kMost - 1, kLeast + 1})
    EXPECT_EQ(index.Find("Torch.f", other, Direction::kForward), -1) << other;
  EXPECT_EQ(index.Find("Torch.g", kMost, Direction::kForward), 7);
  EXPECT_EQ(index.Find("Torch.g", kLeast, Direction::kForward), -1);
}

TEST(CallIndex, AnEmptyDumpHasNone) {
  EXPECT_EQ(CallIndex(Dump()).Find("Torch.f", 0, Direction::kForward), -1);
}

}  // namespace
}  // namespace msprobe::compare
