#include "engine/kernels/diff.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/threads.h"
#include "engine/kernels/diff_scalar.h"
#include "engine/kernels/digest.h"
#include "tests/kernels/random_tensor.h"

namespace msprobe::kernels {
namespace {

void ExpectSameDiff(const Diff& a, const Diff& b, const std::string& what) {
  EXPECT_EQ(a.count, b.count) << what;
  EXPECT_EQ(a.unequal, b.unequal) << what;
  EXPECT_EQ(a.nonfinite_target, b.nonfinite_target) << what;
  EXPECT_EQ(a.nonfinite_golden, b.nonfinite_golden) << what;
  EXPECT_EQ(a.nonfinite_mismatch, b.nonfinite_mismatch) << what;
  const auto same = [&](double x, double y, const char* field) {
    EXPECT_TRUE(Bits(x) == Bits(y) || (std::isnan(x) && std::isnan(y)))
        << what << ": " << field << " " << x << " " << y;
  };
  same(a.cosine, b.cosine, "cosine");
  same(a.euclidean, b.euclidean, "euclidean");
  same(a.relative_l2, b.relative_l2, "relative_l2");
  same(a.max_abs_error, b.max_abs_error, "max_abs_error");
  same(a.max_rel_error, b.max_rel_error, "max_rel_error");
  same(a.ratio_within_1e3, b.ratio_within_1e3, "ratio_within_1e3");
  same(a.ratio_within_5e3, b.ratio_within_5e3, "ratio_within_5e3");
  same(a.rmse, b.rmse, "rmse");
  same(a.mape, b.mape, "mape");
  EXPECT_EQ(a.max_ulp, b.max_ulp) << what;
  EXPECT_EQ(a.nonfinite_matched, b.nonfinite_matched) << what;
  EXPECT_EQ(a.first_index, b.first_index) << what;
  EXPECT_EQ(a.worst_index, b.worst_index) << what;
  same(a.worst_target, b.worst_target, "worst_target");
  same(a.worst_golden, b.worst_golden, "worst_golden");
}

// Two tensors with equally many values: the second is near the first, equal to it or unrelated, in
// another layout and possibly another dtype.
struct RandomPair {
  RandomTensor target, golden;
  std::string Text() const { return target.Text() + " against " + golden.Text(); }
};

RandomPair MakeRandomPair(Random& random, DType t, DType g, int64_t max_elements) {
  RandomPair p;
  const Values values = static_cast<Values>(random() % 3);
  p.target = MakeRandomTensor(random, t, values, max_elements);
  const int64_t count = p.target.view().numel() * ValuesPerElement(t);
  const int64_t elements = count / ValuesPerElement(g);
  // Half of an fp4 pair is no element: then both use the target's dtype.
  if (elements * ValuesPerElement(g) != count) {
    p.golden = p.target;
    return p;
  }
  p.golden.dtype = g;
  if (t == g && random() % 2) {
    p.golden.shape = p.target.shape;  // a contiguous copy with a few elements changed
    p.golden.bytes.resize(static_cast<size_t>(elements) * DTypeSize(g));
    CopyContiguous(p.target.view(), p.golden.bytes.data());
    for (uint64_t k = random() % 4; k > 0 && elements > 0; --k) {
      Fill(random, g, Values::kAnyBits,
           p.golden.bytes.data() +
               static_cast<size_t>(Uniform(random, 0, elements - 1)) * DTypeSize(g),
           1);
    }
    int64_t next = 1;
    p.golden.strides.assign(p.golden.shape.size(), 0);
    for (size_t d = p.golden.shape.size(); d-- > 0; next *= p.golden.shape[d])
      p.golden.strides[d] = next;
    return p;
  }
  const int64_t step = Uniform(random, -1, 2);
  p.golden.shape = {elements};
  p.golden.strides = {step};
  const int64_t reach = step * std::max<int64_t>(0, elements - 1);
  p.golden.base = reach < 0 ? -reach : 0;
  p.golden.bytes.resize(static_cast<size_t>(std::abs(reach) + 1) * DTypeSize(g));
  Fill(random, g, values, p.golden.bytes.data(), std::abs(reach) + 1);
  return p;
}

Diff DiffOf(const TensorView& t, const TensorView& g, ThreadPool* pool = nullptr) {
  Result<Diff> d = ComputeDiff(t, g, pool);
  EXPECT_TRUE(d.ok()) << d.status().message();
  Crc32Pair checksums{1, 1};
  ExpectSameDiff(*ComputeDiff(t, g, pool, &checksums), *d, "with checksums");
  EXPECT_EQ(checksums.target, Crc32(t));
  EXPECT_EQ(checksums.golden, Crc32(g));
  return *d;
}

// Every dtype against itself and 8 others, 200 layouts, every SIMD target, against the scalar
// definition, bit for bit.
class DiffOfDType : public testing::TestWithParam<int> {};
TEST_P(DiffOfDType, EqualsScalarOnEveryTarget) {
  const DType dtype = static_cast<DType>(GetParam());
  Random random(200 + GetParam());
  for (int i = 0; i < 200; ++i) {
    const DType other = i % 2 == 0 ? dtype : static_cast<DType>(random() % kDTypeCount);
    const RandomPair p = MakeRandomPair(random, dtype, other, i % 20 == 0 ? 30000 : 2000);
    const Diff expected = ComputeDiffScalar(p.target.view(), p.golden.view());
    ForEachTarget([&](const char* target) {
      ExpectSameDiff(DiffOf(p.target.view(), p.golden.view()), expected,
                     p.Text() + " on " + target);
    });
    if (HasFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(All, DiffOfDType, testing::Range(0, kDTypeCount), DTypeOfInstance);

TEST(Diff, BoundarySizesAndThreads) {
  ThreadPool two(2), three(3);
  Random random(7);
  const int64_t most = 2 * kGroupElements + 5000;
  std::vector<uint8_t> a(static_cast<size_t>(most) * 4), b;
  Fill(random, DType::kFloat32, Values::kOrdinary, a.data(), most);
  b = a;
  for (int64_t i = 0; i < most; i += 777) EncodeElement(DType::kFloat32, 0.5, b.data() + i * 4);
  for (const int64_t n : {int64_t{1}, int64_t{15}, int64_t{17}, kChunkElements - 1,
                          kChunkElements + 1, kGroupElements, most}) {
    const TensorView t = Flat(a.data(), DType::kFloat32, n), g = Flat(b.data(), DType::kFloat32, n);
    const Diff expected = ComputeDiffScalar(t, g);
    ExpectSameDiff(DiffOf(t, g), expected, std::to_string(n));
    ExpectSameDiff(DiffOf(t, g, &two), expected, std::to_string(n) + ", two threads");
    ExpectSameDiff(DiffOf(t, g, &three), expected, std::to_string(n) + ", three threads");
  }
}

// An oracle that shares no code with the kernel: long double, one number after the other.
TEST(Diff, AgreesWithLongDouble) {
  Random random(9);
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    const int64_t n = 50021;
    const size_t size = DTypeSize(dtype);
    std::vector<uint8_t> a(static_cast<size_t>(n) * size), b(a.size());
    Fill(random, dtype, Values::kOrdinary, a.data(), n);
    Fill(random, dtype, Values::kOrdinary, b.data(), n);
    const Diff d = DiffOf(Flat(a.data(), dtype, n), Flat(b.data(), dtype, n));
    long double tt = 0, gg = 0, tg = 0, dd = 0, relative = 0;
    double max_abs = 0, max_rel = 0;
    int64_t nonzero = 0, unequal = 0, within1 = 0, within5 = 0, worst = -1;
    const double eps = dtype == DType::kFloat64 ? 2.220446049250313e-16 : 1.1920928955078125e-07;
    for (int64_t i = 0; i < n; ++i) {
      const double t = ElementToDouble(dtype, a.data() + static_cast<size_t>(i) * size);
      const double g = ElementToDouble(dtype, b.data() + static_cast<size_t>(i) * size);
      tt += static_cast<long double>(t) * t;
      gg += static_cast<long double>(g) * g;
      tg += static_cast<long double>(t) * g;
      dd += static_cast<long double>(t - g) * (t - g);
      const double rel =
          g != 0 ? std::fabs(t - g) / std::fabs(g) : std::fabs((t + eps) - eps) / eps;
      if (g != 0) {
        relative += rel;
        ++nonzero;
      }
      within1 += rel < 0.001;
      within5 += rel < 0.005;
      unequal += t != g;
      max_rel = std::max(max_rel, rel);
      if (std::fabs(t - g) > max_abs) {
        max_abs = std::fabs(t - g);
        worst = i;
      }
    }
    EXPECT_NEAR(d.cosine, static_cast<double>(tg / std::sqrt(tt * gg)), 1e-13);
    EXPECT_NEAR(d.euclidean / static_cast<double>(std::sqrt(dd)), 1, 1e-13);
    EXPECT_NEAR(d.relative_l2 / static_cast<double>(std::sqrt(dd / gg)), 1, 1e-13);
    EXPECT_NEAR(d.rmse / static_cast<double>(std::sqrt(dd / n)), 1, 1e-13);
    EXPECT_NEAR(d.mape / static_cast<double>(relative / nonzero), 1, 1e-12);
    EXPECT_EQ(d.max_abs_error, max_abs);
    EXPECT_EQ(d.max_rel_error, max_rel);
    EXPECT_EQ(d.ratio_within_1e3, static_cast<double>(within1) / n);
    EXPECT_EQ(d.ratio_within_5e3, static_cast<double>(within5) / n);
    EXPECT_EQ(d.unequal, unequal);
    EXPECT_EQ(d.worst_index, worst);
  }
}

Diff DiffOfFloats(const std::vector<float>& t, const std::vector<float>& g) {
  const int64_t n = static_cast<int64_t>(t.size()), m = static_cast<int64_t>(g.size());
  return DiffOf(Flat(t.data(), DType::kFloat32, n), Flat(g.data(), DType::kFloat32, m));
}

TEST(Diff, EqualTensors) {
  const Diff d = DiffOfFloats({0.1f, -2, 3}, {0.1f, -2, 3});
  EXPECT_EQ(d.unequal, 0);
  EXPECT_EQ(d.cosine, 1);
  EXPECT_EQ(d.relative_l2, 0);
  EXPECT_EQ(d.max_abs_error, 0);
  EXPECT_EQ(d.max_ulp, 0);
  EXPECT_EQ(d.ratio_within_1e3, 1);
  EXPECT_EQ(d.first_index, -1);
  EXPECT_EQ(d.worst_index, -1);
}

TEST(Diff, Zeros) {
  Diff d = DiffOfFloats({0, -0.0f}, {0, 0});
  EXPECT_EQ(d.unequal, 0);
  EXPECT_EQ(d.cosine, 1);
  EXPECT_EQ(d.relative_l2, 0);
  EXPECT_TRUE(std::isnan(d.mape));
  EXPECT_EQ(d.ratio_within_1e3, 1);
  d = DiffOfFloats({1, 0}, {0, 0});
  EXPECT_TRUE(std::isnan(d.cosine));
  EXPECT_EQ(d.relative_l2, kInf);
  EXPECT_NEAR(d.max_rel_error, 8388608, 1);  // 1 / eps
  EXPECT_EQ(d.ratio_within_1e3, 0.5);
  d = DiffOfFloats({0, 0}, {1, 0});
  EXPECT_TRUE(std::isnan(d.cosine));
  EXPECT_EQ(d.relative_l2, 1);
}

TEST(Diff, SquaresOutOfRange) {
  for (const double size : {1e200, 1e-200}) {
    const double t[] = {size, 0}, g[] = {size, 2 * size};
    const int64_t shape[] = {2}, strides[] = {1};
    const auto of = [&](const double* p) {
      return TensorView{p, DType::kFloat64, 1, shape, strides};
    };
    const Diff d = *ComputeDiff(of(t), of(g));
    EXPECT_TRUE(std::isnan(d.cosine) && std::isnan(d.relative_l2)) << size;
    EXPECT_EQ(d.euclidean, size > 1 ? kInf : 2 * size);
    EXPECT_EQ(d.max_abs_error, 2 * size);
    const Diff same = *ComputeDiff(of(g), of(g));
    EXPECT_EQ(same.cosine, 1) << size;
    EXPECT_EQ(same.relative_l2, 0);
    EXPECT_EQ(same.euclidean, 0);
  }
}

TEST(Diff, NonFinite) {
  const float inf = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  const Diff d = DiffOfFloats({nan, inf, -inf, 1, 5, nan}, {nan, inf, inf, nan, 2, 7});
  EXPECT_EQ(d.count, 6);
  EXPECT_EQ(d.unequal, 4);
  EXPECT_EQ(d.nonfinite_target, 4);
  EXPECT_EQ(d.nonfinite_golden, 4);
  EXPECT_EQ(d.nonfinite_mismatch, 3);
  EXPECT_EQ(d.nonfinite_matched, 2) << "the first NaN, the first infinity";
  EXPECT_EQ(d.max_abs_error, 3);
  EXPECT_EQ(d.euclidean, 3);
  EXPECT_EQ(d.first_index, 2);
  EXPECT_EQ(d.worst_index, 2);
  EXPECT_EQ(d.worst_target, -kInf);
  EXPECT_EQ(d.worst_golden, kInf);
  EXPECT_EQ(d.ratio_within_1e3, 2.0 / 6);
  const Diff none = DiffOfFloats({nan}, {nan});
  EXPECT_EQ(none.unequal, 0);
  EXPECT_TRUE(std::isnan(none.cosine) && std::isnan(none.max_abs_error));
  EXPECT_EQ(none.max_ulp, -1);
}

TEST(Diff, UlpInTheCoarserFormat) {
  EXPECT_EQ(DiffOfFloats({std::nextafterf(1, 2)}, {1}).max_ulp, 1);
  EXPECT_EQ(DiffOfFloats({-1e-45f}, {1e-45f}).max_ulp, 2);  // across zero, denormals
  const int64_t n = 1;
  const uint16_t half[] = {0x3c00}, half_next[] = {0x3c03};
  EXPECT_EQ(DiffOf(Flat(half, DType::kFloat16, n), Flat(half_next, DType::kFloat16, n)).max_ulp, 3);
  EXPECT_EQ(DiffOf(Flat(half, DType::kBFloat16, n), Flat(half_next, DType::kBFloat16, n)).max_ulp,
            3);
  const float near[] = {1.001f};
  EXPECT_EQ(DiffOf(Flat(near, DType::kFloat32, n), Flat(half, DType::kFloat16, n)).max_ulp, 1);
  const uint16_t one[] = {0x3f80};
  EXPECT_EQ(DiffOf(Flat(near, DType::kFloat32, n), Flat(one, DType::kBFloat16, n)).max_ulp, 0);
  const int32_t a[] = {-7}, b[] = {5};
  EXPECT_EQ(DiffOf(Flat(a, DType::kInt32, n), Flat(b, DType::kInt32, n)).max_ulp, 12);
  const uint8_t yes[] = {1};
  EXPECT_EQ(DiffOf(Flat(yes, DType::kBool, n), Flat(near, DType::kFloat32, n)).max_ulp, -1);
  const float z[] = {1, 2};
  EXPECT_EQ(DiffOf(Flat(z, DType::kComplex64, n), Flat(z, DType::kComplex64, n)).max_ulp, -1);
}

// In the small formats, every number is one ULP from the next.
TEST(Diff, OrdinalsAreConsecutive) {
  for (const DType dtype :
       {DType::kFloat16, DType::kBFloat16, DType::kFloat8E4M3FN, DType::kFloat8E5M2,
        DType::kFloat8E4M3FNUZ, DType::kFloat8E5M2FNUZ, DType::kFloat8E8M0FNU}) {
    const int largest = DTypeSize(dtype) == 2            ? 0x7fff
                        : dtype == DType::kFloat8E8M0FNU ? 0xff
                                                         : 0x7f;
    const int64_t offset =
        dtype == DType::kFloat8E8M0FNU ? 1 : 0;  // no zero: byte 0 is the smallest number
    for (int bits = 0; bits <= largest; ++bits) {
      const uint16_t element = static_cast<uint16_t>(bits);
      const double value = ElementToDouble(dtype, &element);
      if (!std::isfinite(value)) continue;
      EXPECT_EQ(Ordinal(value, FormatOf(dtype)), bits + offset) << DTypeTorchName(dtype);
      EXPECT_EQ(Ordinal(-value, FormatOf(dtype)), -(bits + offset)) << DTypeTorchName(dtype);
    }
  }
  EXPECT_EQ(Ordinal(1.0, FormatOf(DType::kFloat32)), 0x3f800000);
  EXPECT_EQ(Ordinal(1e-45, FormatOf(DType::kFloat32)), 1);
  EXPECT_EQ(Ordinal(5e-324, FormatOf(DType::kFloat64)), 1);
}

TEST(Diff, WideIntegersAreSubtractedBeforeRounding) {
  const int64_t n = 2;
  const int64_t a[] = {(int64_t{1} << 53) + 1, 4}, b[] = {int64_t{1} << 53, 4};
  const Diff d = DiffOf(Flat(a, DType::kInt64, n), Flat(b, DType::kInt64, n));
  EXPECT_EQ(d.unequal, 1);
  EXPECT_EQ(d.max_abs_error, 1);
  EXPECT_EQ(d.euclidean, 1);
  EXPECT_EQ(d.max_ulp, 1);
  EXPECT_EQ(d.worst_index, 0);
  const int64_t one = 1;
  const int64_t low[] = {std::numeric_limits<int64_t>::min()};
  const uint64_t high[] = {~uint64_t{0}};
  EXPECT_EQ(DiffOf(Flat(low, DType::kInt64, one), Flat(high, DType::kUInt64, one)).max_ulp,
            std::numeric_limits<int64_t>::max());
}

TEST(Diff, Complex) {
  const float a[] = {3, 4, 0, 0}, b[] = {0, 0, 0, 0};
  const int64_t n = 2;
  const Diff d = DiffOf(Flat(a, DType::kComplex64, n), Flat(b, DType::kComplex64, n));
  EXPECT_EQ(d.max_abs_error, 5);
  EXPECT_EQ(d.unequal, 1);
  EXPECT_EQ(d.worst_target, 5);
  EXPECT_TRUE(std::isnan(d.cosine));
  const Diff same = DiffOf(Flat(a, DType::kComplex64, n), Flat(a, DType::kComplex64, n));
  EXPECT_EQ(same.cosine, 1);
  EXPECT_EQ(same.unequal, 0);
}

TEST(Diff, CountsMustAgree) {
  const float v[] = {1, 2, 3};
  const int64_t two = 2, three = 3;
  const Result<Diff> d =
      ComputeDiff(Flat(v, DType::kFloat32, two), Flat(v, DType::kFloat32, three));
  ASSERT_FALSE(d.ok());
  EXPECT_EQ(d.status().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(d.status().message().find("[3]"), std::string::npos);
}

TEST(Diff, Empty) {
  const Diff d = DiffOfFloats({}, {});
  EXPECT_EQ(d.count, 0);
  EXPECT_TRUE(std::isnan(d.cosine));
  EXPECT_EQ(d.max_ulp, -1);
}

}  // namespace
}  // namespace msprobe::kernels
