#include "engine/kernels/perturb.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/kernels/random_tensor.h"

namespace msprobe::kernels {
namespace {

struct Case {
  DType dtype;
  double noise, epsilon, smallest_normal, largest;  // epsilon: 1 and the next number differ by it
};
const Case kCases[] = {{DType::kFloat64, 1e-16, 0x1p-52, 0x1p-1022, 1.7976931348623157e308},
                       {DType::kFloat32, 1e-8, 0x1p-23, 0x1p-126, 3.4028234663852886e38},
                       {DType::kFloat16, 1e-6, 0x1p-10, 0x1p-14, 65504},
                       {DType::kBFloat16, 1e-4, 0x1p-7, 0x1p-126, 3.3895313892515355e38}};

// A tensor of this dtype without overlap: expanded dimensions get a stride of their own.
RandomTensor MakeTensor(Random& random, DType dtype) {
  for (;;) {
    RandomTensor t = MakeRandomTensor(random, dtype, Values::kPlaced, 20000);
    std::vector<int64_t> seen(t.bytes.size(), 0);
    bool overlaps = false;
    const StridedRuns runs = MakeRuns(t.view());
    runs.ForEach(0, runs.count, [&](int64_t offset) {
      for (int64_t i = 0; i < runs.run; ++i)
        overlaps |= seen[static_cast<size_t>(t.base + offset + i * runs.run_stride)]++ > 0;
    });
    if (!overlaps) return t;
  }
}

std::vector<double> Decoded(const RandomTensor& t) {
  const size_t size = DTypeSize(t.dtype);
  std::vector<uint8_t> bytes(static_cast<size_t>(t.view().numel()) * size);
  CopyContiguous(t.view(), bytes.data());
  std::vector<double> values(bytes.size() / size);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = ElementToDouble(t.dtype, bytes.data() + i * size);
  return values;
}

// Distance between a number and its neighbours.
double Ulp(const Case& c, double value) {
  const double size = std::max(std::abs(value), c.smallest_normal);
  return std::ldexp(c.epsilon, std::ilogb(size));
}

bool Same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

TEST(AddNoise, ChangesEveryElementAboveTheRoot) {
  Random random(3);
  for (const Case& c : kCases) {
    for (int i = 0; i < 100; ++i) {
      RandomTensor t = MakeTensor(random, c.dtype);
      const std::vector<double> before = Decoded(t);
      const int64_t changed = AddNoise(t.view(), c.noise);
      const std::vector<double> after = Decoded(t);
      int64_t expected = 0;
      for (size_t k = 0; k < before.size(); ++k) {
        const double x = before[k];
        if (!std::isfinite(x) || std::abs(x) <= std::sqrt(c.noise) || x == c.largest) {
          EXPECT_TRUE(Same(x, after[k])) << x;
          continue;
        }
        ++expected;
        EXPECT_GT(after[k], x);
        // The element that lies nearest, or the next one.
        EXPECT_LE(after[k] - x, std::max(c.noise + Ulp(c, x), 2 * Ulp(c, x))) << x;
      }
      EXPECT_EQ(changed, expected) << t.Text();
    }
  }
}

TEST(AddNoise, LargeNumbersMoveByOneUnit) {
  for (const Case& c : kCases) {
    uint8_t bytes[3 * 8];
    const size_t size = DTypeSize(c.dtype);
    const double values[] = {1024, -1024, 0};
    for (size_t i = 0; i < 3; ++i) EncodeElement(c.dtype, values[i], bytes + i * size);
    const int64_t n = 3;
    EXPECT_EQ(AddNoise(Flat(bytes, c.dtype, n), c.noise), 2);
    EXPECT_EQ(ElementToDouble(c.dtype, bytes), 1024 + 1024 * c.epsilon);
    EXPECT_EQ(ElementToDouble(c.dtype, bytes + size), -1024 + 512 * c.epsilon);
    EXPECT_EQ(ElementToDouble(c.dtype, bytes + 2 * size), 0);
  }
}

TEST(FlipLastBit, MovesNormalNumbersByOneUnit) {
  Random random(4);
  for (const Case& c : kCases) {
    for (int i = 0; i < 100; ++i) {
      RandomTensor t = MakeTensor(random, c.dtype);
      const std::vector<double> before = Decoded(t);
      const int64_t changed = FlipLastBit(t.view());
      const std::vector<double> after = Decoded(t);
      int64_t expected = 0;
      for (size_t k = 0; k < before.size(); ++k) {
        const double x = before[k];
        if (!std::isfinite(x) || std::abs(x) <= c.smallest_normal) {
          EXPECT_TRUE(Same(x, after[k])) << x;
          continue;
        }
        ++expected;
        EXPECT_EQ(std::abs(after[k] - x), Ulp(c, x));
      }
      EXPECT_EQ(changed, expected) << t.Text();
      EXPECT_EQ(FlipLastBit(t.view()), changed);  // the second time, the bits are as before
      const std::vector<double> again = Decoded(t);
      for (size_t k = 0; k < before.size(); ++k) EXPECT_TRUE(Same(before[k], again[k]));
    }
  }
}

TEST(Perturb, OtherDtypesStay) {
  Random random(6);
  for (int d = 0; d < kDTypeCount; ++d) {
    RandomTensor t = MakeTensor(random, static_cast<DType>(d));
    const bool is_float = d <= static_cast<int>(DType::kBFloat16);
    const std::vector<uint8_t> before = t.bytes;
    if (is_float) continue;
    EXPECT_EQ(AddNoise(t.view(), 1e-8), 0);
    EXPECT_EQ(FlipLastBit(t.view()), 0);
    EXPECT_EQ(t.bytes, before);
  }
}

std::vector<float> Swapped(std::vector<int64_t> shape, std::vector<int64_t> strides = {}) {
  if (strides.empty()) strides = ContiguousStrides(shape);
  std::vector<float> values(24);
  std::iota(values.begin(), values.end(), 0.0f);
  const TensorView view{.data = values.data(),
                        .dtype = DType::kFloat32,
                        .ndim = static_cast<int>(shape.size()),
                        .shape = shape.data(),
                        .strides = strides.data()};
  if (!SwapEnds(view)) values.clear();
  return values;
}

TEST(SwapEnds, OneElementOrOneRow) {
  std::vector<float> expected(24);
  std::iota(expected.begin(), expected.end(), 0.0f);
  const auto with = [&](std::initializer_list<std::pair<size_t, size_t>> pairs) {
    std::vector<float> values = expected;
    for (const auto& [a, b] : pairs) std::swap(values[a], values[b]);
    return values;
  };
  EXPECT_EQ(Swapped({24}), with({{0, 23}}));
  EXPECT_EQ(Swapped({4, 6}), with({{0, 23}}));
  EXPECT_EQ(Swapped({6, 4}, {1, 6}), with({{0, 23}}));
  EXPECT_EQ(Swapped({4, 3, 2}), with({{0, 22}, {1, 23}}));
  EXPECT_EQ(Swapped({2, 3, 4}, {1, 2, 6}), with({{0, 5}, {6, 11}, {12, 17}, {18, 23}}));
  EXPECT_TRUE(Swapped({}).empty());
  EXPECT_TRUE(Swapped({1, 24}).empty());
  EXPECT_TRUE(Swapped({2, 0}).empty());
}

}  // namespace
}  // namespace msprobe::kernels
