#include "engine/stability/sampling_budget.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace msprobe::stability {
namespace {

using Choice = SamplingBudget::Choice;

// A training of `calls` calls a step, each of `own` seconds, whose second runs take `extra`
// seconds.
struct Training {
  SamplingBudget budget;
  double own, extra, now = 0;
  std::map<std::string, int> times;
  int sampled = 0;

  void Step(int calls) {
    for (int i = 0; i < calls; ++i) {
      now += own;
      const std::string name = fmt::format("Functional.linear.{}.forward", i);
      if (budget.Choose(name, now) != Choice::kSampled) continue;
      now += extra;
      budget.Spend(extra);
      ++times[name];
      ++sampled;
    }
    budget.EndStep(now);
  }
};

TEST(SamplingBudget, ZeroHasNoLimit) {
  Training t{SamplingBudget(0), 1e-4, 1};
  for (int step = 0; step < 3; ++step) t.Step(500);
  EXPECT_EQ(t.sampled, 1500);
}

TEST(SamplingBudget, TheRunTakesNoLongerThanAllowed) {
  for (const double share : {0.1, 1.0, 3.0}) {
    for (const double extra : {1e-5, 1e-3, 0.1}) {
      Training t{SamplingBudget(share), 1e-4, extra};
      for (int step = 0; step < 60; ++step) t.Step(2000);
      const double own = 60 * 2000 * 1e-4;
      EXPECT_LE(t.budget.spent(), own * share + SamplingBudget::kFreeSeconds + extra + 1e-9);
      EXPECT_GT(t.sampled, 0);
    }
  }
}

TEST(SamplingBudget, EachCallHasItsTurn) {
  Training t{SamplingBudget(1), 1e-3, 16e-3};
  for (int step = 0; step < 200; ++step) t.Step(1000);
  EXPECT_EQ(t.times.size(), 1000u);
  EXPECT_GE(t.budget.period(), 16);
  EXPECT_LE(t.budget.period(), 64);
}

TEST(SamplingBudget, CheapRunsAreAllSampledAgain) {
  Training t{SamplingBudget(1), 1e-3, 1e-2};
  for (int step = 0; step < 20; ++step) t.Step(1000);
  EXPECT_GT(t.budget.period(), 1);
  t.extra = 1e-5;
  for (int step = 0; step < 20; ++step) t.Step(1000);
  EXPECT_EQ(t.budget.period(), 1);
}

TEST(SamplingBudget, TheSameNamesInTheSameStep) {
  std::vector<std::set<std::string>> chosen(2);
  for (auto& names : chosen) {
    Training t{SamplingBudget(1), 1e-3, 4e-3};
    for (int step = 0; step < 30; ++step) t.Step(1000);
    for (const auto& [name, count] : t.times) names.insert(fmt::format("{} {}", name, count));
  }
  EXPECT_EQ(chosen[0], chosen[1]);
}

}  // namespace
}  // namespace msprobe::stability
