#include "engine/model/nonfinite.h"

#include <gtest/gtest.h>

#include <limits>

namespace msprobe::dump {
namespace {

TEST(Nonfinite, KindsThatTheInputsDoNotHaveAreIntroduced) {
  const Nonfinite none, nan{.nan = true}, inf{.inf = true}, both{.nan = true, .inf = true};
  EXPECT_EQ(KindsIntroduced(none, none), "");
  EXPECT_EQ(KindsIntroduced(none, nan), "NaN");
  EXPECT_EQ(KindsIntroduced(none, inf), "Inf");
  EXPECT_EQ(KindsIntroduced(none, both), "NaN and Inf");
  EXPECT_EQ(KindsIntroduced(inf, inf), "");     // passed on, not introduced
  EXPECT_EQ(KindsIntroduced(inf, nan), "NaN");  // inf - inf
  EXPECT_EQ(KindsIntroduced(nan, inf), "");
  EXPECT_EQ(KindsIntroduced(nan, both), "");
  EXPECT_EQ(KindsIntroduced(inf, both), "NaN");
}

TEST(Nonfinite, OfStatisticsAndOfNumbers) {
  Nonfinite seen;
  seen.Add(kernels::Stats{});
  seen.Add(1e308);
  EXPECT_FALSE(seen.any());
  kernels::Stats stats;
  stats.neg_inf = 1;
  seen.Add(stats);
  EXPECT_TRUE(seen.inf);
  EXPECT_FALSE(seen.nan);
  seen.Add(std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(seen.nan);
  Nonfinite of_number;
  of_number.Add(-std::numeric_limits<double>::infinity());
  EXPECT_TRUE(of_number.inf);
}

}  // namespace
}  // namespace msprobe::dump
