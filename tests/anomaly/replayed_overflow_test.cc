#include "engine/anomaly/replayed_overflow.h"

#include <gmock/gmock.h>

#include "engine/base/messages/message.h"

namespace msprobe::anomaly {
namespace {

kernels::Stats FiniteStats() { return {.count = 4}; }
kernels::Stats NaN() { return {.count = 4, .nan = 1}; }
kernels::Stats InfStats() { return {.count = 4, .neg_inf = 2}; }

OverflowVerdict Judged(std::initializer_list<std::pair<kernels::Stats, kernels::Stats>> outputs) {
  ReplayedCall call{.name = "Torch.f.0"};
  for (const auto& [device, reference] : outputs)
    call.forward.Add(call.forward.outputs, device, reference);
  return VerdictOf(call, call.forward);
}

TEST(OverflowVerdict, AnOverflowOfBothSidesIsNormal) {
  EXPECT_EQ(Judged({{InfStats(), InfStats()}}), OverflowVerdict::kNormal);
  EXPECT_EQ(Judged({{FiniteStats(), FiniteStats()}, {NaN(), InfStats()}}),
            OverflowVerdict::kNormal);
}

TEST(OverflowVerdict, NaNOfBothSidesIsNoOverflow) {
  EXPECT_EQ(Judged({{NaN(), NaN()}}), OverflowVerdict::kUndefined);  // sqrt(-1)
  EXPECT_EQ(Judged({{NaN(), NaN()}, {InfStats(), InfStats()}}), OverflowVerdict::kUndefined);
  const kernels::Stats both = {.count = 4, .nan = 1, .neg_inf = 1};  // log of -1 and 0
  EXPECT_EQ(Judged({{both, both}}), OverflowVerdict::kUndefined);
  EXPECT_EQ(Judged({{both, InfStats()}}),
            OverflowVerdict::kNormal);  // inf - inf on the device alone
}

TEST(OverflowVerdict, AnOverflowOfOneSideIsAbnormal) {
  EXPECT_EQ(Judged({{InfStats(), FiniteStats()}}), OverflowVerdict::kAbnormal);
  EXPECT_EQ(Judged({{FiniteStats(), InfStats()}}), OverflowVerdict::kAbnormal);
  // Each output counts by itself: an overflow elsewhere does not excuse it.
  EXPECT_EQ(Judged({{NaN(), FiniteStats()}, {FiniteStats(), NaN()}}), OverflowVerdict::kAbnormal);
  EXPECT_EQ(Judged({{InfStats(), InfStats()}, {NaN(), FiniteStats()}}), OverflowVerdict::kAbnormal);
}

TEST(OverflowVerdict, NoOverflowIsNeverNormal) {
  EXPECT_EQ(Judged({{FiniteStats(), FiniteStats()}}), OverflowVerdict::kNotReproduced);
  EXPECT_EQ(Judged({}), OverflowVerdict::kNotExecuted);
  ReplayedCall failed{.why = "no kernel"_t};
  failed.forward.Add(0, InfStats(), InfStats());
  EXPECT_EQ(VerdictOf(failed, failed.forward), OverflowVerdict::kNotExecuted);
}

TEST(ReplayedCall, ALineHoldsAllOfIt) {
  ReplayedCall call{.name = "Torch.f.0", .note = std::string("a \"note\"\n")};
  call.forward.Add(2, NaN(), FiniteStats());
  call.forward.Add(3, InfStats(), InfStats());
  call.backward.Add(0, FiniteStats(), InfStats());
  const std::string line = ToLine(call);
  EXPECT_EQ(line.find('\n'), line.npos);
  const Result<ReplayedCall> same = ReplayedCallFromLine(line);
  ASSERT_TRUE(same.ok()) << same.status().ToString();
  EXPECT_EQ(ToLine(*same), line);
  EXPECT_EQ(same->forward.outputs, 2);
  EXPECT_EQ(same->forward.device, "NaN and Inf");
  EXPECT_EQ(same->forward.differs, "output.2: NaN on the device, finite in the reference");
  EXPECT_EQ(VerdictOf(*same, same->backward), OverflowVerdict::kAbnormal);
}

TEST(ReplayedCall, AnotherTextIsAnError) {
  for (const std::string_view line :
       {"", "[", "[1, 2]", "{}",
        "[1, 1, \"a\", \"b\", \"c\", \"d\", \"e\", \"f\", \"g\", \"h\", 3]",
        "[1, 1, \"a\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"\", \"more\"]"}) {
    EXPECT_FALSE(ReplayedCallFromLine(line).ok()) << line;
  }
}

}  // namespace
}  // namespace msprobe::anomaly
