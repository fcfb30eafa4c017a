#include "engine/compare/repeat_spread.h"

#include <gmock/gmock.h>

#include "engine/compare/explain/summary.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::First;
using test::Value;
using ::testing::HasSubstr;

// A chain of three calls; the second result is `error` off, and so is what follows.
Dump RepeatedRun(double error, double begin = 0, const char* extra = nullptr) {
  const auto bits = [](int step, double by) {
    return Value(step, by).Print(std::to_string(step) + "/" + std::to_string(by * 1e9));
  };
  DumpBuilder b;
  b.Call("Functional.linear.0.forward").In(bits(1, 0)).Out(bits(2, begin));
  b.Call("Functional.scatter.0.forward").In(bits(2, begin)).Out(bits(3, error));
  if (extra != nullptr) b.Call(extra).In(bits(3, error)).Out(bits(8, 0));
  b.Call("Functional.relu.0.forward").In(bits(3, error)).Out(bits(4, error));
  return b.Take();
}

Comparison With(Dump target, std::vector<double> errors_of_repeats, CompareOptions options = {}) {
  std::deque<Dump> repeats;
  for (const double error : errors_of_repeats) repeats.push_back(RepeatedRun(error));
  Result<Comparison> c =
      CompareWithRepeats(std::move(target), RepeatedRun(0), options, std::move(repeats));
  EXPECT_TRUE(c.ok());
  return *std::move(c);
}

TEST(RepeatSpreadTest, RepeatsWithTheSameBitsMakeTheSmallestDifferenceReal) {
  EXPECT_EQ(First(With(RepeatedRun(3e-7), {})), "none");
  const Comparison c = With(RepeatedRun(3e-7), {0, 0, 0});
  EXPECT_EQ(First(c), "Functional.scatter.0.forward");
  EXPECT_THAT(c.first.why.English(), HasSubstr("3 repeats of the golden have the same bits"));
}

TEST(RepeatSpreadTest, WhatRepeatsDifferByIsNoise) {
  EXPECT_EQ(First(With(RepeatedRun(1e-3), {})), "Functional.scatter.0.forward");
  const Comparison c = With(RepeatedRun(1e-3), {-1.5e-3, 4e-4});
  EXPECT_EQ(First(c), "none");
  EXPECT_EQ(Summarize(c).verdict, RunVerdict::kNoise);
}

TEST(RepeatSpreadTest, WhatIsFarBeyondTheSpreadIsNamedWithIt) {
  const Comparison c = With(RepeatedRun(4e-5), {1e-6, -1e-6});
  EXPECT_EQ(First(c), "Functional.scatter.0.forward");
  EXPECT_THAT(c.first.why.English(), HasSubstr("it is off by 40 times the spread of 2 repeats"));
}

TEST(RepeatSpreadTest, ARepeatOfAnotherStructureSaysSo) {
  std::deque<Dump> repeats;
  DumpBuilder other;
  other.Call("Functional.linear.0.forward")
      .In(Value(1).Print("1/0.000000"))
      .Out(Value(2).Print("2/0.000000"));
  repeats.push_back(other.Take());
  Result<Comparison> c =
      CompareWithRepeats(RepeatedRun(3e-7), RepeatedRun(0), {}, std::move(repeats));
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(First(*c), "none");  // as without repeats: nothing is known of this call
  ASSERT_FALSE(c->not_observed.empty());
  EXPECT_THAT(c->not_observed[0].English(), HasSubstr("in a repeat of another structure"));
}

TEST(RepeatSpreadTest, BitsDecideWhereTheyAreAskedFor) {
  CompareOptions exact;
  exact.exactness = Exactness::kExact;
  EXPECT_EQ(First(With(RepeatedRun(1e-3), {1e-3}, exact)), "Functional.scatter.0.forward");
}

}  // namespace
}  // namespace msprobe::compare
