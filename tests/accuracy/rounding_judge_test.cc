#include "engine/accuracy/rounding_judge.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <vector>

#include "engine/accuracy/kernel_rounding.h"
#include "engine/accuracy/rounding_steps.h"
#include "engine/tensor/float_formats.h"

namespace msprobe::accuracy {
namespace {

using Kind = RoundingVerdict::Kind;

template <typename T>
class JudgedTensor {
 public:
  JudgedTensor(std::vector<T> values, DType dtype)
      : values_(std::move(values)), shape_{static_cast<int64_t>(values_.size())}, dtype_(dtype) {}
  TensorView view() const {
    return {.data = values_.data(), .dtype = dtype_, .ndim = 1, .shape = shape_.data()};
  }

 private:
  std::vector<T> values_;
  std::vector<int64_t> shape_;
  DType dtype_;
};
JudgedTensor<double> Exact(std::vector<double> values) {
  return {std::move(values), DType::kFloat64};
}
JudgedTensor<float> Single(std::vector<float> values) {
  return {std::move(values), DType::kFloat32};
}

RoundingJudge JudgeOf(const JudgedTensor<float>& result, const JudgedTensor<double>& exact) {
  return RoundingJudge(result.view(), exact.view(), DType::kFloat32);
}

TEST(RoundingSteps, TheUnitInTheLastPlace) {
  EXPECT_EQ(UnitInLastPlace(1.5, *FormatOf(DType::kBFloat16)), 0x1p-7);
  EXPECT_EQ(UnitInLastPlace(-1.99, *FormatOf(DType::kFloat32)), 0x1p-23);
  EXPECT_EQ(UnitInLastPlace(0, *FormatOf(DType::kFloat16)), 0x1p-24);
  EXPECT_EQ(UnitInLastPlace(1e-60, *FormatOf(DType::kFloat32)), 0x1p-149);
  EXPECT_EQ(Rounded(1e5, *FormatOf(DType::kFloat16)), std::numeric_limits<double>::infinity());
  for (const double x : {0.1, 3.14159, -1e-5, 6e-8, 2049.0, -0.0}) {
    EXPECT_EQ(Rounded(x, *FormatOf(DType::kFloat16)),
              static_cast<double>(HalfToFloat(FloatToHalf(static_cast<float>(x)))))
        << x;
  }
}

TEST(RoundingSteps, MovesByWhatIsAskedFor) {
  std::vector<double> values(1000, 3.0);
  values[7] = 0, values[8] = std::numeric_limits<double>::infinity();
  const JudgedTensor<double> tensor(values, DType::kFloat64);
  MoveByRoundings(tensor.view(), {.seed = 4, .relative = 0x1p-20});
  const auto* const moved = static_cast<const double*>(tensor.view().data);
  int up = 0;
  for (int i = 0; i < 1000; ++i) {
    if (i == 7 || i == 8) continue;
    EXPECT_DOUBLE_EQ(std::fabs(moved[i] - 3), 3 * 0x1p-20);
    up += moved[i] > 3;
  }
  EXPECT_NEAR(up, 500, 80);
  EXPECT_EQ(moved[7], 0);
  EXPECT_TRUE(std::isinf(moved[8]));
}

TEST(KernelRounding, TermsComeFromShapes) {
  const auto terms = [](std::string_view name, bool pointwise, auto inputs, auto outputs) {
    const KernelCall call{name, pointwise, false, inputs, outputs};
    return RoundingOf(call, DType::kBFloat16, DType::kFloat32).terms;
  };
  using Shapes = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(terms("aten::mm", false, Shapes{{8, 512}, {512, 4}}, Shapes{{8, 4}}), 512);
  EXPECT_EQ(terms("aten::bmm", false, Shapes{{6, 8, 32}, {6, 32, 4}}, Shapes{{6, 8, 4}}), 32);
  EXPECT_EQ(terms("aten::sum", false, Shapes{{8, 512}}, Shapes{{8}}), 512);
  EXPECT_EQ(terms("aten::add", true, Shapes{{8, 512}, {512}}, Shapes{{8, 512}}), 1);
  const KernelCall sums{"aten::index_add", false, false, {{8, 4}}, {{8, 4}}};
  EXPECT_TRUE(RoundingOf(sums, DType::kBFloat16, DType::kFloat32).in_dtype);
  EXPECT_EQ(
      KernelsText(std::vector<NamedKernel>{{"aten::add", 1}, {"aten::mm", 9}, {"aten::mm", 2}}),
      "mm (9 terms), add");
}

// The gradient of a convolution's bias is a sum over the batch and all places.
TEST(KernelRounding, AConvolutionAddsInTurn) {
  const auto output = [](std::string_view name, DType result) {
    const std::vector<std::vector<int64_t>> inputs = {{8, 16, 64, 64}}, outputs = {{16}};
    return RoundingOf({name, false, false, inputs, outputs}, result, DType::kFloat32).output;
  };
  const double terms = 8 * 64 * 64;
  EXPECT_DOUBLE_EQ(output("aten::convolution_backward", DType::kFloat32),
                   0x1p-24 * (1 + std::sqrt(terms / 256)));
  EXPECT_DOUBLE_EQ(output("aten::sum", DType::kFloat32), 0x1p-24 * 1.5);
  // In halves it still rounds inside to them, which is more.
  EXPECT_GT(output("aten::convolution_backward", DType::kBFloat16), 0x1p-11);
}

// A long sum of halves no longer takes up its terms; the gradient of the input is no such sum.
TEST(KernelRounding, ALayerNormAddsTheGradientsOfItsWeightInTurn) {
  const auto rule = [](int64_t rows, DType dtype) {
    return RoundingOf({.name = "aten::native_layer_norm_backward",
                       .inputs = {{rows, 32}, {rows, 32}, {rows, 1}, {rows, 1}, {32}},
                       .outputs = {{rows, 32}, {32}, {32}}},
                      dtype, DType::kFloat32);
  };
  EXPECT_DOUBLE_EQ(rule(4096, DType::kBFloat16).sum, 0x1p-8 * 64);
  EXPECT_LT(rule(4096, DType::kBFloat16).output, 0x1p-7);
  EXPECT_DOUBLE_EQ(rule(8, DType::kBFloat16).sum, rule(8, DType::kBFloat16).output);
}

TEST(RoundingJudge, OneRoundingIsNoError) {
  const RoundingJudge judge = JudgeOf(Single({1.0F, 3.0F}), Exact({1 + 1e-8, 3}));
  EXPECT_EQ(judge.verdict().kind, Kind::kPass);
  EXPECT_EQ(judge.verdict().worst, 0);
  EXPECT_NEAR(judge.verdict().error, 0.084, 0.001);
}

TEST(RoundingJudge, OneWrongElementOfManyIsNamed) {
  std::vector<float> values(100000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 1 + static_cast<float>(i) / 4;
  const std::vector<double> exact(values.begin(), values.end());
  values[31337] *= 1 + 0x1p-16F;
  RoundingJudge judge = JudgeOf(Single(values), Exact(exact));
  EXPECT_TRUE(judge.IsBeyond());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(judge.AddMoved(Exact(exact).view()).ok());
  judge.Judge();
  EXPECT_EQ(judge.verdict().kind, Kind::kError);
  EXPECT_EQ(judge.verdict().worst, 31337);
  EXPECT_EQ(judge.verdict().beyond, 1);
  DetailsRow row;
  FillRounding(judge.verdict(), judge.shape(), &row);
  EXPECT_EQ(row[kRoundingVerdict], "error");
  EXPECT_EQ(row[kWorstIndex], "[31337]");
}

TEST(RoundingJudge, WhatRoundingsMoveIsExplained) {
  const auto result = Single({1e-6F, 1.0F});
  const auto exact = Exact({1.2e-6, 1.0});
  RoundingJudge judge = JudgeOf(result, exact);
  EXPECT_TRUE(judge.IsBeyond());
  for (const double moved : {1.1e-6, 1.3e-6, 1.15e-6, 1.25e-6})
    ASSERT_TRUE(judge.AddMoved(Exact({moved, 1.0}).view()).ok());
  judge.SetKernels("sum (64 terms)", true);
  judge.Judge();
  EXPECT_EQ(judge.verdict().kind, Kind::kPass);
  EXPECT_EQ(judge.verdict().from, "one rounding; sum (64 terms)");
  EXPECT_FALSE(judge.AddMoved(Exact({1.0}).view()).ok());
}

TEST(RoundingJudge, CutHalvesAreTruncated) {
  std::vector<uint16_t> cut, rounded;
  std::vector<double> exact;
  for (int i = 0; i < 200; ++i) {
    const float x = 1 + static_cast<float>(i) * 0.0137F;
    exact.push_back(static_cast<double>(x));
    cut.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16));
    rounded.push_back(FloatToBFloat16(x));
  }
  RoundingJudge judge(JudgedTensor<uint16_t>(cut, DType::kBFloat16).view(), Exact(exact).view(),
                      DType::kBFloat16);
  ASSERT_TRUE(judge.AddMoved(Exact(exact).view()).ok());
  judge.Judge();
  EXPECT_EQ(judge.verdict().kind, Kind::kError);
  EXPECT_EQ(judge.verdict().cause, RoundingCause::kTruncated);
  const RoundingJudge right(JudgedTensor<uint16_t>(rounded, DType::kBFloat16).view(),
                            Exact(exact).view(), DType::kBFloat16);
  EXPECT_EQ(right.verdict().kind, Kind::kPass);
}

TEST(RoundingJudge, AnErrorThatStaysIsAFormula) {
  const auto exact = Exact({1.0, 2.0});
  const auto of = [&](std::vector<float> again) {
    RoundingJudge judge = JudgeOf(Single({1.001F, 2.001F}), exact);
    EXPECT_TRUE(judge.FindCause(Single(std::move(again)).view(), exact.view()).ok());
    return judge.verdict().cause;
  };
  EXPECT_EQ(of({1.0011F, 2.0009F}), RoundingCause::kFormula);
  EXPECT_EQ(of({0.9995F, 2.0001F}), RoundingCause::kLostUpcast);
}

TEST(RoundingJudge, ACauseThatCannotBeLookedForIsSaid) {
  const auto exact = Exact({1.0, 2.0});
  const auto cell = [&](float first) {
    RoundingJudge judge = JudgeOf(Single({first, 2.0F}), exact);
    judge.NoCause("unknown: refused");
    DetailsRow row;
    FillRounding(judge.verdict(), judge.shape(), &row);
    return row[kRoundingCause];
  };
  EXPECT_EQ(cell(1.5F), "unknown: refused");
  EXPECT_EQ(cell(1.0F), "") << "nothing is beyond its bound";
}

TEST(RoundingJudge, NaNAndInfinity) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(),
                  kInfinity = std::numeric_limits<float>::infinity();
  constexpr double kNaN64 = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(JudgeOf(Single({kNaN, kInfinity}), Exact({kNaN64, HUGE_VAL})).IsBeyond());
  EXPECT_FALSE(JudgeOf(Single({kInfinity}), Exact({1e39})).IsBeyond()) << "it overflows";
  EXPECT_TRUE(JudgeOf(Single({kInfinity}), Exact({1e30})).IsBeyond());
  EXPECT_TRUE(JudgeOf(Single({1.0F}), Exact({kNaN64})).IsBeyond());
  EXPECT_FALSE(JudgeOf(Single({0.0F}), Exact({1e-40})).IsBeyond()) << "flushed to zero";
  EXPECT_EQ(JudgeOf(Single({}), Exact({})).verdict().kind, Kind::kPass);
}

TEST(RoundingJudge, SaysWhyThereIsNoBound) {
  const RoundingJudge integers(JudgedTensor<int32_t>({1}, DType::kInt32).view(), Exact({1}).view(),
                               DType::kInt32);
  EXPECT_EQ(integers.verdict().kind, Kind::kNoBound);
  EXPECT_EQ(integers.verdict().from, "integers are exact");
  const RoundingJudge wide(Exact({1}).view(), Exact({1}).view(), DType::kFloat64);
  EXPECT_EQ(wide.verdict().from, "nothing is more precise than float64");
}

}  // namespace
}  // namespace msprobe::accuracy
