#include "engine/kernels/stats.h"

#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <cmath>

#include "engine/base/threads.h"
#include "engine/kernels/stats_scalar.h"
#include "tests/kernels/random_tensor.h"

namespace msprobe::kernels {
namespace {

void ExpectSameStats(const Stats& a, const Stats& b, const std::string& what) {
  EXPECT_EQ(a.count, b.count) << what;
  EXPECT_EQ(a.nan, b.nan) << what;
  EXPECT_EQ(a.pos_inf, b.pos_inf) << what;
  EXPECT_EQ(a.neg_inf, b.neg_inf) << what;
  EXPECT_EQ(a.zero, b.zero) << what;
  EXPECT_EQ(Bits(a.max), Bits(b.max)) << what << ": max " << a.max << " " << b.max;
  EXPECT_EQ(Bits(a.min), Bits(b.min)) << what << ": min " << a.min << " " << b.min;
  EXPECT_EQ(Bits(a.mean), Bits(b.mean)) << what << ": mean " << a.mean << " " << b.mean;
  EXPECT_EQ(Bits(a.norm), Bits(b.norm)) << what << ": norm " << a.norm << " " << b.norm;
  EXPECT_EQ(a.int_max, b.int_max) << what;
  EXPECT_EQ(a.int_min, b.int_min) << what;
  EXPECT_EQ(a.fingerprint, b.fingerprint) << what;
}

Stats StatsOfFloats(const std::vector<float>& v) {
  const int64_t n = static_cast<int64_t>(v.size());
  return ComputeStats(Flat(v.data(), DType::kFloat32, n));
}

// Every dtype x 200 layouts x every SIMD target, against the scalar definition, bit for bit.
class StatsOfDType : public testing::TestWithParam<int> {};
TEST_P(StatsOfDType, EqualsScalarOnEveryTarget) {
  const DType dtype = static_cast<DType>(GetParam());
  Random random(100 + GetParam());
  for (int i = 0; i < 200; ++i) {
    const Values values = static_cast<Values>(i % 3);
    const RandomTensor t = MakeRandomTensor(random, dtype, values, i % 20 == 0 ? 40000 : 3000);
    const Stats expected = ComputeStatsScalar(t.view());
    ForEachTarget([&](const char* target) {
      ExpectSameStats(ComputeStats(t.view()), expected, t.Text() + " on " + target);
    });
    if (HasFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(All, StatsOfDType, testing::Range(0, kDTypeCount), DTypeOfInstance);

// Sizes around every boundary: step, chunk, group; with and without threads.
TEST(Stats, BoundarySizesAndThreads) {
  ThreadPool two(2), three(3);
  Random random(7);
  std::vector<uint8_t> bytes(static_cast<size_t>(2 * kGroupElements + 5000) * 4);
  Fill(random, DType::kFloat32, Values::kOrdinary, bytes.data(), 2 * kGroupElements + 5000);
  for (const int64_t n :
       {int64_t{1}, int64_t{15}, int64_t{16}, int64_t{17}, int64_t{31}, int64_t{63}, int64_t{65},
        kChunkElements - 1, kChunkElements, kChunkElements + 1, 3 * kChunkElements + 5,
        kGroupElements - 1, kGroupElements, kGroupElements + 1, 2 * kGroupElements + 5000}) {
    for (const DType dtype :
         {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kInt8, DType::kFloat4E2M1X2}) {
      const TensorView view = Flat(bytes.data(), dtype, n);
      const Stats expected = ComputeStatsScalar(view);
      const std::string what = std::string(DTypeTorchName(dtype)) + " " + std::to_string(n);
      ExpectSameStats(ComputeStats(view), expected, what);
      ExpectSameStats(ComputeStats(view, &two), expected, what + ", two threads");
      ExpectSameStats(ComputeStats(view, &three), expected, what + ", three threads");
    }
  }
}

TEST(Stats, StridedEqualsContiguousCopyWithThreads) {
  ThreadPool pool(3);
  Random random(8);
  const int64_t rows = 1500, columns = 700;
  std::vector<uint8_t> bytes(rows * columns * 4);
  Fill(random, DType::kFloat32, Values::kPlaced, bytes.data(), rows * columns);
  const int64_t shape[] = {columns, rows}, strides[] = {1, columns};
  const TensorView view{.data = bytes.data(),
                        .dtype = DType::kFloat32,
                        .ndim = 2,
                        .shape = shape,
                        .strides = strides};
  std::vector<uint8_t> copy(bytes.size());
  CopyContiguous(view, copy.data());
  const int64_t n = rows * columns;
  const Stats expected = ComputeStats(Flat(copy.data(), DType::kFloat32, n));
  ExpectSameStats(ComputeStats(view), expected, "transposed");
  ExpectSameStats(ComputeStats(view, &pool), expected, "transposed, three threads");
}

// An oracle that shares no code with the kernel: long double, one number after the other.
TEST(Stats, AgreesWithLongDouble) {
  Random random(9);
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                            DType::kInt32, DType::kUInt8}) {
    const int64_t n = 100003;
    const size_t size = DTypeSize(dtype);
    std::vector<uint8_t> bytes(static_cast<size_t>(n) * size);
    Fill(random, dtype, Values::kOrdinary, bytes.data(), n);
    const Stats s = ComputeStats(Flat(bytes.data(), dtype, n));
    long double sum = 0, absolute = 0, squares = 0;
    double max = -kInf, min = kInf;
    for (int64_t i = 0; i < n; ++i) {
      const double v = ElementToDouble(dtype, bytes.data() + static_cast<size_t>(i) * size);
      sum += v;
      absolute += std::fabs(v);
      squares += static_cast<long double>(v) * v;
      max = std::max(max, v);
      min = std::min(min, v);
    }
    EXPECT_EQ(s.max, max);
    EXPECT_EQ(s.min, min);
    EXPECT_NEAR(s.mean, static_cast<double>(sum / n), static_cast<double>(absolute / n) * 1e-14);
    EXPECT_NEAR(s.norm / static_cast<double>(std::sqrt(squares)), 1.0, 1e-14);
  }
}

TEST(Stats, SpecialValues) {
  const float inf = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  Stats s = StatsOfFloats({1, nan, -inf, 0, -0.0f, inf, inf});
  EXPECT_EQ(s.count, 7);
  EXPECT_EQ(s.nan, 1);
  EXPECT_EQ(s.pos_inf, 2);
  EXPECT_EQ(s.neg_inf, 1);
  EXPECT_EQ(s.zero, 2);
  EXPECT_TRUE(std::isnan(s.max) && std::isnan(s.min) && std::isnan(s.mean) && std::isnan(s.norm));
  s = StatsOfFloats({1, inf});
  EXPECT_EQ(s.max, kInf);
  EXPECT_EQ(s.min, 1);
  EXPECT_EQ(s.mean, kInf);
  EXPECT_EQ(s.norm, kInf);
  s = StatsOfFloats({-inf, inf});
  EXPECT_TRUE(std::isnan(s.mean));
  EXPECT_EQ(s.min, -kInf);
  s = StatsOfFloats({-3, -2});
  EXPECT_EQ(s.max, -2);  // the padding of a short vector must not count as an element
  EXPECT_EQ(s.min, -3);
  EXPECT_EQ(s.zero, 0);
  s = StatsOfFloats({-0.0f, 0.0f});
  EXPECT_EQ(Bits(s.max), Bits(0.0));
  EXPECT_EQ(Bits(s.min), Bits(0.0));
}

TEST(Stats, EmptyAndScalar) {
  const Stats empty = StatsOfFloats({});
  EXPECT_EQ(empty.count, 0);
  EXPECT_TRUE(std::isnan(empty.max) && std::isnan(empty.mean));
  const float value = 2.5f;
  const Stats s = ComputeStats({.data = &value, .dtype = DType::kFloat32});
  EXPECT_EQ(s.count, 1);
  EXPECT_EQ(s.max, 2.5);
  EXPECT_EQ(s.norm, 2.5);
}

TEST(Stats, WideIntegersKeepEveryDigit) {
  const int64_t v[] = {(int64_t{1} << 53) + 1, -5, std::numeric_limits<int64_t>::max() - 1}, n = 3;
  const Stats s = ComputeStats(Flat(v, DType::kInt64, n));
  EXPECT_EQ(s.int_max, std::numeric_limits<int64_t>::max() - 1);
  EXPECT_EQ(s.int_min, -5);
  const Stats u = ComputeStats(Flat(v, DType::kUInt64, n));
  EXPECT_EQ(static_cast<uint64_t>(u.int_max), static_cast<uint64_t>(-5));
  EXPECT_EQ(u.int_min, (int64_t{1} << 53) + 1);
}

TEST(Stats, ComplexIsMeasuredByModulus) {
  const float v[] = {3, -4, 0, 0, 5, 12};
  const int64_t n = 3;
  const Stats s = ComputeStats(Flat(v, DType::kComplex64, n));
  EXPECT_EQ(s.max, 13);
  EXPECT_EQ(s.min, 0);
  EXPECT_EQ(s.mean, 6);
  EXPECT_EQ(s.zero, 1);
  EXPECT_DOUBLE_EQ(s.norm, std::sqrt(25.0 + 169.0));
  const double huge[] = {3e300, 4e300, 3e-300, 4e-300};
  const int64_t two = 2;
  const Stats h = ComputeStats(Flat(huge, DType::kComplex128, two));
  EXPECT_DOUBLE_EQ(h.max, 5e300);
  EXPECT_DOUBLE_EQ(h.min, 5e-300);
}

// A script may flush denormals: its thread keeps this mode, and the statistics do not change.
TEST(Stats, CallersFloatingPointModeIsIgnoredAndKept) {
  const std::vector<float> v = {1e-40f, 2e-40f, 0};
  const Stats expected = StatsOfFloats(v);
  EXPECT_EQ(expected.zero, 1);
  EXPECT_GT(expected.min + expected.max, 0);
  const unsigned before = _mm_getcsr();
  const unsigned flushing = before | 0x8040 | 0x6000;  // flush denormals, round towards zero
  _mm_setcsr(flushing);
  const Stats s = StatsOfFloats(v);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(after & ~0x3fu, flushing & ~0x3fu);
  ExpectSameStats(s, expected, "flushing denormals");
}

}  // namespace
}  // namespace msprobe::kernels
