#include "engine/stability/judge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "engine/tensor/float_formats.h"

namespace msprobe::stability {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// A tensor with these numbers, rounded to the dtype.
struct Numbers {
  Numbers(DType type, const std::vector<double>& values) : dtype(type) {
    shape = {static_cast<int64_t>(values.size())};
    bytes.resize(values.size() * 8);
    for (size_t i = 0; i < values.size(); ++i) {
      uint8_t* const p = bytes.data() + i * DTypeSize(dtype);
      const auto put = [&](auto v) { std::memcpy(p, &v, sizeof(v)); };
      if (dtype == DType::kFloat64) put(values[i]);
      if (dtype == DType::kFloat32) put(static_cast<float>(values[i]));
      if (dtype == DType::kFloat16) put(FloatToHalf(static_cast<float>(values[i])));
      if (dtype == DType::kBFloat16) put(FloatToBFloat16(static_cast<float>(values[i])));
      if (dtype == DType::kInt64) put(static_cast<int64_t>(values[i]));
    }
  }
  TensorView view() const {
    return {.data = bytes.data(), .dtype = dtype, .ndim = 1, .shape = shape.data()};
  }
  DType dtype;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;
};

Verdict Of(Perturbation p, const std::vector<double>& again, const std::vector<double>& first,
           DType dtype = DType::kFloat32, Question question = {}) {
  question.perturbation = p;
  return Judge(question, Numbers(dtype, again).view(), Numbers(dtype, first).view());
}

TEST(Judge, RatioBeyondTheLimitOfTheDtype) {
  const auto p = Perturbation::kChangeValue;
  EXPECT_TRUE(Of(p, {1.0001, 2}, {1, 2}).consistent);
  EXPECT_FALSE(Of(p, {1.0003, 2}, {1, 2}).consistent);
  EXPECT_EQ(Of(p, {1.5, 2}, {1, 2}).max_rel, "0.5");
  EXPECT_EQ(Of(p, {1, 2}, {1.5, 2}).max_rel, "0.5");
  EXPECT_TRUE(Of(p, {1 + 0x1p-10}, {1}, DType::kFloat16).consistent);
  EXPECT_FALSE(Of(p, {1 + 0x1p-8}, {1}, DType::kFloat16).consistent);
  EXPECT_FALSE(Of(p, {1 + 0x1p-7}, {1}, DType::kBFloat16).consistent);
}

TEST(Judge, OfANoiseOnlyWhatIsAmplifiedCounts) {
  const Question bf16{.perturbed = DType::kBFloat16};
  for (const auto p : {Perturbation::kAddNoise, Perturbation::kBitNoise}) {
    EXPECT_TRUE(Of(p, {1 + 0x1p-7}, {1}, DType::kBFloat16, bf16).consistent) << "passed on";
    EXPECT_FALSE(Of(p, {1 + 0x1p-5}, {1}, DType::kBFloat16, bf16).consistent);
    EXPECT_TRUE(Of(p, {1 + 0x1p-7}, {1}, DType::kFloat32, bf16).consistent) << "cast to float32";
    EXPECT_FALSE(Of(p, {1.001}, {1}).consistent);
  }
}

TEST(Judge, NanAndInfinityAreNotHidden) {
  const double nan = std::nan("");
  for (const auto p : {Perturbation::kAddNoise, Perturbation::kToCpu, Perturbation::kNoChange}) {
    EXPECT_EQ(Of(p, {nan, 2}, {1, 2}).max_rel, "nan");
    EXPECT_EQ(Of(p, {1, 2}, {nan, 2}).max_rel, "nan");
    EXPECT_EQ(Of(p, {1, 2}, {kInf, 2}).max_rel, "inf");
    EXPECT_EQ(Of(p, {-kInf, 2}, {kInf, 2}).max_rel, "symbol_flipping");
    EXPECT_TRUE(Of(p, {nan, kInf, -kInf}, {nan, kInf, -kInf}).consistent);
  }
}

TEST(Judge, SignsCountWhereTheyMatter) {
  EXPECT_EQ(Of(Perturbation::kAddNoise, {-1, 2}, {1, 2}).max_rel, "symbol_flipping");
  EXPECT_TRUE(Of(Perturbation::kAddNoise, {-1e-6, 2}, {1e-6, 2}).consistent);
}

TEST(Judge, SmallResultsHaveASmallFloor) {
  EXPECT_FALSE(Of(Perturbation::kChangeValue, {1.1e-5, 1e-5}, {1e-5, 1e-5}).consistent);
  EXPECT_TRUE(Of(Perturbation::kChangeValue, {1.1e-5, 1}, {1e-5, 1}).consistent);
  EXPECT_FALSE(Of(Perturbation::kChangeValue, {2e-4, 1e-4}, {1e-4, 1e-4}, DType::kFloat32,
                  {.gradients = true})
                   .consistent);
}

TEST(Judge, RepetitionsHaveToBeEqual) {
  EXPECT_TRUE(Of(Perturbation::kNoChange, {1, -0.0}, {1, 0}).consistent);
  EXPECT_FALSE(Of(Perturbation::kNoChange, {1 + 0x1p-23}, {1}).consistent);
  const Verdict tiny = Of(Perturbation::kNoChange, {1, 2e-30}, {1, 1e-30});
  EXPECT_FALSE(tiny.consistent);
  EXPECT_GT(tiny.size, 0);
  EXPECT_FALSE(Of(Perturbation::kNoChange, {1, 3}, {1, 2}, DType::kInt64).consistent);
  EXPECT_TRUE(Of(Perturbation::kAddNoise, {1, 3}, {1, 2}, DType::kInt64).consistent);
}

TEST(Judge, BesideTheCpuErrorsAndTheirMeanCount) {
  EXPECT_TRUE(Of(Perturbation::kToCpu, {1 + 0x1p-15, 1 - 0x1p-15}, {1, 1}).consistent);
  EXPECT_FALSE(Of(Perturbation::kToCpu, {1.001, 1}, {1, 1}).consistent);
  // Each error is accepted. One may be so large; a thousand on the same side are a bias.
  const double below = 1 - 0x1p-8;
  const auto of_bf16 = [](const std::vector<double>& again, const std::vector<double>& first) {
    return Of(Perturbation::kToCpu, again, first, DType::kBFloat16).consistent;
  };
  EXPECT_TRUE(of_bf16({below}, {1}));
  std::vector<double> low(1000, below), one(1000, 1), mixed = low, opposite = one;
  EXPECT_FALSE(of_bf16(low, one));
  for (size_t i = 0; i < 1000; i += 2) std::swap(mixed[i], opposite[i]);
  EXPECT_TRUE(of_bf16(mixed, opposite));
}

TEST(Judge, ShapesAndOwnLimits) {
  EXPECT_EQ(Of(Perturbation::kNoChange, {1, 2}, {1}).max_rel, "shape");
  EXPECT_TRUE(
      Of(Perturbation::kChangeValue, {1.5}, {1}, DType::kFloat32, {.limit = 2.05}).consistent);
}

}  // namespace
}  // namespace msprobe::stability
