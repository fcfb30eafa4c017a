#include "engine/replay/input_numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/kernels/stats.h"

namespace msprobe::replay {
namespace {

struct Made {
  std::vector<std::byte> elements;
  kernels::Stats stats;
};

Made Make(const InputNumbers& wanted, uint64_t seed = 1) {
  Made made{std::vector<std::byte>(wanted.bytes()), {}};
  MakeNumbers(wanted, seed, made.elements);
  made.stats = kernels::ComputeStats(
      {.data = made.elements.data(), .dtype = wanted.dtype, .ndim = 1, .shape = &wanted.count});
  return made;
}

TEST(InputNumbers, StatisticsAreMet) {
  struct Case {
    double max, min, mean, norm;
  };
  constexpr int64_t kCount = 10000;
  // Of normal numbers; with one outlier; of a softmax; of ReLU; all at the ends; skewed.
  const Case cases[] = {{4, -4, 0.01, 100}, {8, -0.1, 0, 8.3},  {0.9, 1e-6, 0.001, 1.3},
                        {3, 0.01, 0.4, 60}, {1, -1, 0.2, 99.9}, {100, -1, 0.5, 300}};
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (const Case& c : cases) {
      const kernels::Stats s = Make({.dtype = dtype,
                                     .count = kCount,
                                     .max = c.max,
                                     .min = c.min,
                                     .mean = c.mean,
                                     .norm = c.norm})
                                   .stats;
      const double rounding = dtype == DType::kBFloat16  ? 0x1p-8
                              : dtype == DType::kFloat16 ? 0x1p-11
                                                         : 1e-6;
      EXPECT_NEAR(s.max, c.max, rounding * std::abs(c.max));
      EXPECT_NEAR(s.min, c.min, rounding * std::abs(c.min) + 1e-7);
      EXPECT_NEAR(s.mean, c.mean, 2e-3 * (c.max - c.min)) << c.max << " " << c.mean;
      EXPECT_NEAR(s.norm, c.norm, 0.03 * c.norm) << c.max << " " << c.mean;
      EXPECT_EQ(s.zero, 0);
    }
  }
}

TEST(InputNumbers, CountsAreMet) {
  const kernels::Stats s = Make({.count = 1000,
                                 .max = 2,
                                 .min = -1,
                                 .mean = 0.2,
                                 .norm = 20,
                                 .zeros = 301,
                                 .nans = 3,
                                 .pos_infs = 4,
                                 .neg_infs = 5})
                               .stats;
  EXPECT_EQ(s.zero, 301);
  EXPECT_EQ(s.nan, 3);
  EXPECT_EQ(s.pos_inf, 4);
  EXPECT_EQ(s.neg_inf, 5);
}

TEST(InputNumbers, MasksKeepTheirExtremes) {
  const Made made =
      Make({.count = 100, .max = 1, .min = -1, .norm = 5, .extremes = 40, .extreme = -1e9});
  EXPECT_EQ(made.stats.min, -1e9);
  EXPECT_NEAR(made.stats.norm, 1e9 * std::sqrt(40), 1e5);
  EXPECT_EQ(made.stats.max, 1);
}

TEST(InputNumbers, IndicesStayInTheirRange) {
  for (const DType dtype : {DType::kInt64, DType::kInt32, DType::kUInt8}) {
    const kernels::Stats s =
        Make({.dtype = dtype, .count = 500, .max = 49, .min = 3, .mean = 20}).stats;
    EXPECT_EQ(s.int_max, 49);
    EXPECT_EQ(s.int_min, 3);
    EXPECT_NEAR(s.mean, 20, 1);
  }
}

TEST(InputNumbers, SharesOfBool) {
  const kernels::Stats s =
      Make({.dtype = DType::kBool, .count = 1000, .max = 1, .min = 0, .mean = 0.84}).stats;
  EXPECT_NEAR(s.mean, 0.84, 0.03);
}

TEST(InputNumbers, EqualNamesGiveEqualNumbers) {
  const InputNumbers wanted{.count = 64, .max = 2, .min = -1};
  EXPECT_EQ(Make(wanted, SeedOf("a", 7)).elements, Make(wanted, SeedOf("a", 7)).elements);
  EXPECT_NE(Make(wanted, SeedOf("a", 7)).elements, Make(wanted, SeedOf("b", 7)).elements);
  EXPECT_NE(Make(wanted, SeedOf("a", 7)).elements, Make(wanted, SeedOf("a", 8)).elements);
}

TEST(InputNumbers, EveryDTypeAndSmallCounts) {
  for (int d = 0; d < kDTypeCount; ++d) {
    const DType dtype = static_cast<DType>(d);
    if (dtype == DType::kFloat4E2M1X2 || dtype == DType::kFloat8E8M0FNU) continue;
    for (const int64_t count : {0, 1, 2, 3}) {
      const kernels::Stats s = Make({.dtype = dtype, .count = count, .max = 1, .min = 0.5}).stats;
      EXPECT_EQ(s.count, count);
      if (count > 0 && DTypeKindOf(dtype) == DTypeKind::kFloat) {
        EXPECT_EQ(s.max, 1) << d;
      }
    }
  }
}

// A damaged dump may count more elements than there are.
TEST(InputNumbers, CountsThatCannotBe) {
  const kernels::Stats s =
      Make({.count = 4, .max = 1, .min = 1, .zeros = 4, .nans = 4, .extremes = 4}).stats;
  EXPECT_EQ(s.count, 4);
}

}  // namespace
}  // namespace msprobe::replay
