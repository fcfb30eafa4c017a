#include "engine/kernels/rest_stats.h"

#include <gtest/gtest.h>

#include "engine/base/threads.h"
#include "engine/kernels/chunks.h"
#include "engine/kernels/rest_stats_scalar.h"
#include "tests/kernels/random_tensor.h"

namespace msprobe::kernels {
namespace {

std::optional<RestStats> Rest(const std::vector<double>& values, ThreadPool* pool = nullptr) {
  const auto n = static_cast<int64_t>(values.size());
  const TensorView view = Flat(values.data(), DType::kFloat64, n);
  return ComputeRestStats(view, ComputeStats(view), pool);
}

TEST(RestStatsTest, ExtremesAreTakenAway) {
  for (const double extreme : {-kInf, kInf, -1e4, 1e9, -1.7e308, 8192.0}) {
    const auto rest = Rest({3, extreme, -4, extreme, 0});
    ASSERT_TRUE(rest) << extreme;
    EXPECT_EQ(rest->extremes, 2);
    EXPECT_EQ(rest->max, 3);
    EXPECT_EQ(rest->min, -4);
    EXPECT_EQ(rest->norm, 5);
  }
}

TEST(RestStatsTest, NothingIsSaidWithoutAClearDivision) {
  EXPECT_FALSE(Rest({1, 2, 3})) << "no extremes";
  EXPECT_FALSE(Rest({1e5, 1e6})) << "nothing else";
  EXPECT_FALSE(Rest({1, 5000, 1e6})) << "an element in between";
  EXPECT_FALSE(Rest({1, std::nan(""), 1e6}));
  EXPECT_FALSE(Rest({}));
  const int64_t integers[] = {1, 100000}, n = 2;
  const TensorView view = Flat(integers, DType::kInt64, n);
  EXPECT_FALSE(ComputeRestStats(view, ComputeStats(view)));
}

// Random tensors of every length around the borders of lanes and chunks, beside a plain loop.
TEST(RestStatsTest, EqualsThePlainLoopOnEveryTarget) {
  ThreadPool pool(3);
  ForEachTarget([&](const char* target) {
    Random random(5);
    std::uniform_real_distribution<double> number(-100, 100);
    for (const int64_t n : {2, 7, 8, 9, 63, 4095, 4096, 4097, 70001}) {
      std::vector<float> values(static_cast<size_t>(n));
      for (float& value : values) value = static_cast<float>(number(random));
      for (size_t i = 0; i < values.size(); i += 1 + i % 3) values[i] = i % 2 ? -3.4e38f : -1e4f;
      values[values.size() - 1] = 0;
      double max = -kInf, min = kInf, squares = 0;
      int64_t extremes = 0;
      for (const double value : values) {
        if (std::abs(value) >= kExtreme) {
          ++extremes;
          continue;
        }
        max = std::max(max, value), min = std::min(min, value), squares += value * value;
      }
      const TensorView view = Flat(values.data(), DType::kFloat32, n);
      const auto rest = ComputeRestStats(view, ComputeStats(view));
      ASSERT_TRUE(rest) << target << " " << n;
      EXPECT_EQ(rest->extremes, extremes);
      EXPECT_EQ(rest->max, max) << target << " " << n;
      EXPECT_EQ(rest->min, min);
      EXPECT_NEAR(rest->norm, std::sqrt(squares), 1e-12 * std::sqrt(squares));
      const auto threads = ComputeRestStats(view, ComputeStats(view), &pool);
      EXPECT_EQ(threads->norm, rest->norm) << "bit by bit";
      if (n > kChunkElements) continue;
      const std::vector<double> wide(values.begin(), values.end());
      EXPECT_EQ(rest->norm, std::sqrt(RestOfChunkScalar(wide.data(), n).squares)) << target;
    }
  });
}

}  // namespace
}  // namespace msprobe::kernels
