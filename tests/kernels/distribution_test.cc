#include "engine/kernels/distribution.h"

#include <gtest/gtest.h>

#include "engine/base/threads.h"
#include "engine/kernels/distribution_scalar.h"
#include "tests/kernels/random_tensor.h"

namespace msprobe::kernels {
namespace {

const std::vector<double> kBounds[] = {{}, {0.0}, {-1, 0, 1}, {-0.5, -1e-3, 0.25, 3, 1e9}};

TEST(CountIntervals, EqualsScalarOnEveryTarget) {
  ThreadPool pool(3);
  ForEachTarget([&](const char* target) {
    Random random(11);
    for (int i = 0; i < 400; ++i) {
      const DType dtype = static_cast<DType>(i % kDTypeCount);
      if (!HasOrder(dtype)) continue;
      const RandomTensor t = MakeRandomTensor(
          random, dtype, i % 3 ? Values::kPlaced : Values::kAnyBits, i % 40 ? 6000 : 200000);
      const std::vector<double>& bounds = kBounds[static_cast<size_t>(i) % std::size(kBounds)];
      const int64_t n = t.view().numel();
      std::vector<uint8_t> bytes(static_cast<size_t>(n) * DTypeSize(dtype));
      CopyContiguous(t.view(), bytes.data());
      std::vector<int64_t> expected(bounds.size() + 1);
      std::vector<uint8_t> expected_up(static_cast<size_t>(n)), up(static_cast<size_t>(n), 7);
      ChunkIntervalsScalar(dtype, bytes.data(), n, bounds, expected.data(), expected_up.data());
      ASSERT_EQ(CountIntervals(t.view(), bounds, up.data(), i % 2 ? &pool : nullptr), expected)
          << target << " " << t.Text();
      ASSERT_EQ(up, expected_up) << target << " " << t.Text();
    }
  });
}

TEST(CountIntervals, EndsAndSpecialValues) {
  const double values[] = {-kInf, -1, -0.0, 0, 0.5, 1, 2, kInf, std::nan("")};
  const int64_t n = std::size(values);
  std::vector<uint8_t> up(std::size(values), 7);
  EXPECT_EQ(CountIntervals(Flat(values, DType::kFloat64, n), kBounds[2], up.data()),
            (std::vector<int64_t>{2, 2, 2, 2}));
  EXPECT_EQ(up, (std::vector<uint8_t>{0, 0, 0, 0, 1, 1, 1, 1, 0}));
  EXPECT_EQ(CountIntervals(Flat(values, DType::kFloat64, n), {}), (std::vector<int64_t>{8}));
}

}  // namespace
}  // namespace msprobe::kernels
