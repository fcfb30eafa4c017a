#include "engine/kernels/accuracy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/threads.h"
#include "engine/kernels/accuracy_scalar.h"
#include "tests/kernels/random_tensor.h"

namespace msprobe::kernels {
namespace {

constexpr DType kFloatTypes[] = {DType::kFloat16, DType::kBFloat16,     DType::kFloat32,
                                 DType::kFloat64, DType::kFloat8E4M3FN, DType::kFloat8E5M2};
constexpr size_t kFloatCount = std::size(kFloatTypes);

void ExpectSameAccuracy(const Accuracy& a, const Accuracy& b, const std::string& what) {
  const auto count = [&](int64_t x, int64_t y, const char* field) {
    EXPECT_EQ(x, y) << what << ": " << field;
  };
  const auto number = [&](double x, double y, const char* field) {
    EXPECT_TRUE(Bits(x) == Bits(y) || (std::isnan(x) && std::isnan(y)))
        << what << ": " << field << " " << x << " " << y;
  };
  count(a.count, b.count, "count");
  count(a.finite, b.finite, "finite");
  count(a.both_nan, b.both_nan, "both_nan");
  count(a.same_infinity, b.same_infinity, "same_infinity");
  count(a.nonfinite_failures, b.nonfinite_failures, "nonfinite_failures");
  count(a.unclipped_failures, b.unclipped_failures, "unclipped_failures");
  count(a.nan_errors, b.nan_errors, "nan_errors");
  count(a.infinite_errors, b.infinite_errors, "infinite_errors");
  count(a.infinite_golden, b.infinite_golden, "infinite_golden");
  count(a.within_1e2, b.within_1e2, "within_1e2");
  count(a.within_1e3, b.within_1e3, "within_1e3");
  count(a.within_1e4, b.within_1e4, "within_1e4");
  count(a.above, b.above, "above");
  count(a.below, b.below, "below");
  count(a.unequal, b.unequal, "unequal");
  count(a.inexact, b.inexact, "inexact");
  count(a.small, b.small, "small");
  count(a.small_failures, b.small_failures, "small_failures");
  count(a.normal, b.normal, "normal");
  count(a.relative_failures, b.relative_failures, "relative_failures");
  count(a.ulp_above, b.ulp_above, "ulp_above");
  number(a.max_device, b.max_device, "max_device");
  number(a.max_golden, b.max_golden, "max_golden");
  number(a.dd, b.dd, "dd");
  number(a.gg, b.gg, "gg");
  number(a.dg, b.dg, "dg");
  number(a.max_error, b.max_error, "max_error");
  number(a.squared_errors, b.squared_errors, "squared_errors");
  number(a.max_relative, b.max_relative, "max_relative");
  number(a.sum_relative, b.sum_relative, "sum_relative");
  number(a.max_ulp, b.max_ulp, "max_ulp");
  number(a.sum_ulp, b.sum_ulp, "sum_ulp");
}

Accuracy AccuracyOf(const TensorView& d, const TensorView& g, const AccuracyLimits& limits,
                    ThreadPool* pool = nullptr) {
  Result<Accuracy> a = ComputeAccuracy(d, g, limits, pool);
  EXPECT_TRUE(a.ok()) << a.status().message();
  return *a;
}

AccuracyLimits LimitsOf(DType device, Random& random) {
  AccuracyLimits limits;
  limits.golden_as = device == DType::kBFloat16 && random() % 2 ? DType::kFloat32 : device;
  limits.ulp_of = device;
  limits.unit_of_one_at_zero = random() % 2;
  limits.small_value = random() % 2 ? 0x1p-10 : 0.5;
  limits.small_atol = 0x1p-16;
  limits.rtol = 0x1p-8;
  limits.epsilon = random() % 2 ? 0x1p-8 : 0x1p-52;
  return limits;
}

// Every pair of float dtypes, many layouts, every SIMD target, against the scalar definition.
TEST(Accuracy, EqualsScalarOnEveryTarget) {
  Random random(31);
  for (size_t i = 0; i < 480; ++i) {
    const DType device = kFloatTypes[i % kFloatCount], golden = kFloatTypes[i / kFloatCount % 4];
    const Values values = static_cast<Values>(random() % 3);
    const RandomTensor d = MakeRandomTensor(random, device, values, i % 20 == 0 ? 30000 : 2000);
    const int64_t n = d.view().numel();
    std::vector<uint8_t> g(static_cast<size_t>(n + 1) * DTypeSize(golden));
    Fill(random, golden, values, g.data(), n + 1);
    std::vector<uint8_t> near(static_cast<size_t>(n + 1) * DTypeSize(device));
    CopyContiguous(d.view(), near.data());
    for (int64_t k = 0; k < n; k += 1 + static_cast<int64_t>(random() % 3)) {
      const double v = ElementToDouble(device, near.data() + k * int64_t(DTypeSize(device)));
      EncodeElement(golden, v * (1 + 1e-4 * static_cast<double>(random() % 3)),
                    g.data() + k * int64_t(DTypeSize(golden)));
    }
    const AccuracyLimits limits = LimitsOf(device, random);
    const TensorView gv = Flat(g.data(), golden, n);
    const Accuracy expected = ComputeAccuracyScalar(d.view(), gv, limits);
    ForEachTarget([&](const char* target) {
      ExpectSameAccuracy(
          AccuracyOf(d.view(), gv, limits), expected,
          d.Text() + " against " + std::string(DTypeShortName(golden)) + " on " + target);
    });
    if (HasFailure()) return;
  }
}

TEST(Accuracy, BoundarySizesAndThreads) {
  ThreadPool two(2), three(3);
  Random random(7);
  const int64_t most = 2 * kGroupElements + 5000;
  std::vector<float> d(static_cast<size_t>(most));
  std::vector<double> g(d.size());
  Fill(random, DType::kFloat64, Values::kOrdinary, reinterpret_cast<uint8_t*>(g.data()), most);
  for (size_t i = 0; i < d.size(); ++i) d[i] = static_cast<float>(g[i]);
  d[70000] = INFINITY;
  for (const int64_t n : {int64_t{1}, int64_t{15}, int64_t{17}, kChunkElements - 1,
                          kChunkElements + 1, kGroupElements, most}) {
    const TensorView dv = Flat(d.data(), DType::kFloat32, n),
                     gv = Flat(g.data(), DType::kFloat64, n);
    const AccuracyLimits limits;
    const Accuracy expected = ComputeAccuracyScalar(dv, gv, limits);
    ExpectSameAccuracy(AccuracyOf(dv, gv, limits), expected, std::to_string(n));
    ExpectSameAccuracy(AccuracyOf(dv, gv, limits, &two), expected,
                       std::to_string(n) + ", two threads");
    ExpectSameAccuracy(AccuracyOf(dv, gv, limits, &three), expected,
                       std::to_string(n) + ", three threads");
  }
}

Accuracy AccuracyOfFloats(const std::vector<float>& d, const std::vector<double>& g,
                          AccuracyLimits limits = {}) {
  const int64_t n = static_cast<int64_t>(d.size()), m = static_cast<int64_t>(g.size());
  return AccuracyOf(Flat(d.data(), DType::kFloat32, n), Flat(g.data(), DType::kFloat64, m), limits);
}

// An oracle that shares no code with the kernel: the definitions, in long double, with the rounding
// of the compiler's own conversions.
TEST(Accuracy, AgreesWithLongDouble) {
  Random random(9);
  const int64_t n = 50021;
  std::vector<double> g(static_cast<size_t>(n));
  std::vector<float> d(g.size());
  Fill(random, DType::kFloat64, Values::kOrdinary, reinterpret_cast<uint8_t*>(g.data()), n);
  for (size_t i = 0; i < d.size(); ++i) {
    if (i % 5 == 0) g[i] *= 1e-9;
    d[i] = static_cast<float>(g[i] * (1 + 1e-6 * static_cast<double>(random() % 100)));
    if (i % 7 == 0) d[i] = static_cast<float>(g[i]);
    if (i % 1001 == 0) d[i] += 1e-3F;
  }
  const AccuracyLimits limits{.epsilon = 0x1p-52, .ulp_limit = 32};
  const Accuracy a = AccuracyOfFloats(d, g, limits);
  long double dd = 0, gg = 0, dg = 0, squares = 0, relatives = 0, ulps = 0;
  double max_error = 0, max_relative = 0, max_ulp = 0;
  int64_t above = 0, below = 0, small = 0, small_failures = 0, relative_failures = 0, ulp_above = 0;
  int64_t inexact = 0;
  int64_t within[3] = {};
  for (size_t i = 0; i < d.size(); ++i) {
    const double error = std::fabs(d[i] - g[i]), size = std::fabs(g[i]);
    const double relative = error / (size + 0x1p-52);
    dd += static_cast<long double>(d[i]) * d[i];
    gg += static_cast<long double>(g[i]) * g[i];
    dg += static_cast<long double>(d[i]) * g[i];
    max_error = std::max(max_error, error);
    above += d[i] > static_cast<float>(g[i]);
    below += d[i] < static_cast<float>(g[i]);
    inexact += d[i] != g[i];
    const double limit[3] = {1e-2, 1e-3, 1e-4};
    for (int k = 0; k < 3; ++k) within[k] += relative < limit[k];
    const int exponent = g[i] == 0 ? -126 : std::max(std::ilogb(g[i]), -126);
    const double ulp = std::ldexp(error, 23 - exponent);
    ulps += ulp;
    max_ulp = std::max(max_ulp, ulp);
    ulp_above += ulp > 32;
    if (size <= 0x1p-20) {
      ++small;
      small_failures += error > 0x1p-30;
      continue;
    }
    squares += static_cast<long double>(error) * error;
    relatives += relative;
    max_relative = std::max(max_relative, relative);
    relative_failures += relative > 0x1p-20;
  }
  EXPECT_NEAR(a.Cosine(), static_cast<double>(dg / std::sqrt(dd * gg)), 1e-13);
  EXPECT_NEAR(a.squared_errors / static_cast<double>(squares), 1, 1e-12);
  EXPECT_NEAR(a.sum_relative / static_cast<double>(relatives), 1, 1e-12);
  EXPECT_NEAR(a.sum_ulp / static_cast<double>(ulps), 1, 1e-12);
  EXPECT_EQ(a.max_error, max_error);
  EXPECT_EQ(a.max_relative, max_relative);
  EXPECT_EQ(a.max_ulp, max_ulp);
  EXPECT_EQ(a.above, above);
  EXPECT_EQ(a.below, below);
  EXPECT_EQ(a.unequal, above + below);
  EXPECT_EQ(a.inexact, inexact);
  EXPECT_EQ(a.small, small);
  EXPECT_EQ(a.normal, n - small);
  EXPECT_EQ(a.small_failures, small_failures);
  EXPECT_EQ(a.relative_failures, relative_failures);
  EXPECT_EQ(a.ulp_above, ulp_above);
  EXPECT_EQ(a.within_1e2, within[0]);
  EXPECT_EQ(a.within_1e3, within[1]);
  EXPECT_EQ(a.within_1e4, within[2]);
}

// The golden is rounded to the device's format as a conversion does: one rounding, ties to even,
// subnormal numbers, overflow.
TEST(Accuracy, TheGoldenIsRounded) {
  Random random(4);
  std::vector<float> g;
  for (int i = 0; i < 3000; ++i) {
    const float v = std::bit_cast<float>(static_cast<uint32_t>(random()));
    g.push_back(v);
    g.push_back(std::ldexp(1.0F + static_cast<float>(random() % 4096) / 4096,
                           static_cast<int>(random() % 46) - 28));
  }
  g.insert(g.end(), {65519.0F, 65520.0F, 0x1p-25F, 0x1.8p-24F, -0.0F, 3.3961e38F});
  const int64_t n = static_cast<int64_t>(g.size());
  std::vector<uint16_t> half(g.size()), brain(g.size());
  for (size_t i = 0; i < g.size(); ++i) {
    half[i] = FloatToHalf(g[i]);
    brain[i] = FloatToBFloat16(g[i]);
  }
  const TensorView gv = Flat(g.data(), DType::kFloat32, n);
  EXPECT_EQ(
      AccuracyOf(Flat(half.data(), DType::kFloat16, n), gv, {.golden_as = DType::kFloat16}).unequal,
      0);
  EXPECT_EQ(AccuracyOf(Flat(brain.data(), DType::kBFloat16, n), gv, {.golden_as = DType::kBFloat16})
                .unequal,
            0);
}

// Every fp8 number is the golden that was rounded to it.
TEST(Accuracy, Fp8) {
  for (const DType dtype :
       {DType::kFloat8E4M3FN, DType::kFloat8E5M2, DType::kFloat8E4M3FNUZ, DType::kFloat8E5M2FNUZ}) {
    std::vector<uint8_t> all;
    std::vector<float> golden;
    for (int bits = 0; bits < 256; ++bits) {
      const uint8_t byte = static_cast<uint8_t>(bits);
      const double value = ElementToDouble(dtype, &byte);
      if (!std::isfinite(value)) continue;
      all.push_back(byte);
      golden.push_back(static_cast<float>(value * (1 + 0x1p-8)));
    }
    const int64_t n = static_cast<int64_t>(all.size());
    const Accuracy a =
        AccuracyOf(Flat(all.data(), dtype, n), Flat(golden.data(), DType::kFloat32, n),
                   {.golden_as = dtype, .ulp_of = dtype});
    EXPECT_EQ(a.unequal, 0) << DTypeShortName(dtype);
    EXPECT_EQ(a.finite, n);
    EXPECT_EQ(a.ulp_above, 0);
    EXPECT_LT(a.max_ulp, 0.5);
  }
}

TEST(Accuracy, NotFinite) {
  const double nan = std::nan("");
  const float inf = INFINITY;
  const Accuracy a =
      AccuracyOfFloats({1, NAN, NAN, inf, inf, -inf, 5}, {1, nan, 2, 1e300, -kInf, -kInf, kInf});
  EXPECT_EQ(a.count, 7);
  EXPECT_EQ(a.finite, 1);
  EXPECT_EQ(a.both_nan, 1);
  EXPECT_EQ(a.same_infinity, 2);  // 1e300 is infinite in float32
  EXPECT_EQ(a.nonfinite_failures, 3);
  EXPECT_EQ(a.unclipped_failures, 2);  // Inf - -Inf, too
  EXPECT_EQ(a.nan_errors, 3);
  EXPECT_EQ(a.infinite_errors, 3);
  EXPECT_EQ(a.infinite_golden, 3);
  EXPECT_EQ(a.unequal, 3);
  EXPECT_EQ(a.inexact, 4);
  EXPECT_EQ(a.within_1e4, 1);
  EXPECT_EQ(a.Cosine(), 1);
}

TEST(Accuracy, UlpAtZero) {
  AccuracyLimits limits;
  EXPECT_EQ(AccuracyOfFloats({0x1p-149F}, {0.0}, limits).max_ulp, 1);
  limits.unit_of_one_at_zero = true;
  EXPECT_EQ(AccuracyOfFloats({0x1p-23F}, {0.0}, limits).max_ulp, 1);
  EXPECT_NEAR(AccuracyOfFloats({3.0000005F}, {3.0}).max_ulp, 2, 0.1);
}

TEST(Accuracy, ZerosHaveNoCosine) {
  EXPECT_TRUE(std::isnan(AccuracyOfFloats({0, 0}, {0, 0}).Cosine()));
  EXPECT_TRUE(std::isnan(AccuracyOfFloats({0, 1}, {0, 0}).Cosine()));
}

TEST(Accuracy, WrongInputs) {
  const float v[4] = {};
  const int64_t n = 4, m = 3;
  EXPECT_EQ(
      ComputeAccuracy(Flat(v, DType::kFloat32, n), Flat(v, DType::kFloat32, m), {}).status().code(),
      ErrorCode::kInvalidArgument);
  EXPECT_EQ(
      ComputeAccuracy(Flat(v, DType::kInt32, n), Flat(v, DType::kFloat32, n), {}).status().code(),
      ErrorCode::kUnsupported);
  const int64_t none = 0;
  EXPECT_EQ(AccuracyOf(Flat(v, DType::kFloat32, none), Flat(v, DType::kFloat32, none), {}).count,
            0);
}

}  // namespace
}  // namespace msprobe::kernels
