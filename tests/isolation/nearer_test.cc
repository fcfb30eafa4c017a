#include "engine/isolation/nearer.h"

#include <gmock/gmock.h>

#include <vector>

namespace msprobe::isolation {
namespace {

using ::testing::HasSubstr;

template <typename T>
TensorView View(const std::vector<T>& values, DType dtype) {
  static constexpr int64_t kShape[] = {2};
  EXPECT_EQ(values.size(), 2U);
  return {.data = values.data(), .dtype = dtype, .ndim = 1, .shape = kShape};
}

ReplayedCall CallWith(OutputError output) {
  return {.name = "Functional.linear.0", .outputs = {std::move(output)}};
}

// The gradient of a bias in front of a softmax: the sum is zero, and rounding is all that is left.
OutputError Cancelled() {
  static const std::vector<float> recorded = {3e-9F, -1e-9F};
  static const std::vector<double> exact = {1e-9, 1e-9};
  const TensorView stored = View(recorded, DType::kFloat32);
  Result<OutputError> output =
      MeasureOutput("backward.output.0", &stored, stored, View(exact, DType::kFloat64));
  EXPECT_TRUE(output.ok());
  return *std::move(output);
}

TEST(NearerTest, WhatCancelsIsAsExactAsItsInputs) {
  OutputError output = Cancelled();
  EXPECT_FALSE(IsExact(output));
  EXPECT_EQ(WhichIsNearer(CallWith(output), nullptr).nearer, Nearer::kNeither);

  const std::vector<double> exact = {1e-9, 1e-9}, nudged = {5e-9, -4e-9};
  ASSERT_TRUE(
      Forgive(View(exact, DType::kFloat64), View(nudged, DType::kFloat64), 2, &output).ok());
  EXPECT_TRUE(IsExact(output));
  const NearerVerdict alone = WhichIsNearer(CallWith(output), nullptr);
  EXPECT_EQ(alone.nearer, Nearer::kTarget);
  EXPECT_THAT(alone.sentence, HasSubstr("rounding of its inputs"));
  const ReplayedCall golden = CallWith(output);
  EXPECT_EQ(WhichIsNearer(CallWith(output), &golden).nearer, Nearer::kBoth);
}

TEST(NearerTest, AnErrorBeyondWhatCancelsStays) {
  OutputError output = Cancelled();
  const std::vector<double> exact = {1e-9, 1e-9}, nudged = {1.014e-9, 1e-9};
  ASSERT_TRUE(
      Forgive(View(exact, DType::kFloat64), View(nudged, DType::kFloat64), 2, &output).ok());
  EXPECT_FALSE(IsExact(output));
  ASSERT_TRUE(
      Forgive(View(exact, DType::kFloat64), View(nudged, DType::kFloat64), 2048, &output).ok());
  EXPECT_TRUE(IsExact(output)) << "a sum of a thousand terms";
  output.dtype = "bfloat16";
  ASSERT_TRUE(
      Forgive(View(exact, DType::kFloat64), View(nudged, DType::kFloat64), 2048, &output).ok());
  EXPECT_LT(output.enlarged, 0.01) << "a half is summed in float32";
}

// autocast casts a gradient that was computed in bfloat16 to the dtype of its parameter.
TEST(NearerTest, TheCoarserDTypeDecides) {
  const std::vector<float> recorded = {1.0F, 1.0078125F};
  const std::vector<uint16_t> again = {0x3f80, 0x3f81};  // the same numbers
  const std::vector<double> exact = {1.003, 1.004};
  const TensorView stored = View(recorded, DType::kFloat32);
  const Result<OutputError> output = MeasureOutput(
      "backward.output.1", &stored, View(again, DType::kBFloat16), View(exact, DType::kFloat64));
  ASSERT_TRUE(output.ok()) << output.status().message();
  EXPECT_EQ(output->dtype, "bfloat16");
  EXPECT_EQ(output->recorded_unlike_again, 0);
  EXPECT_TRUE(IsExact(*output));
}

TEST(NearerTest, TheWorstOutputIsThatFarthestBeyondItsDType) {
  ReplayedCall call = CallWith({.place = "forward.output.0",
                                .dtype = "bfloat16",
                                .has_recorded = true,
                                .recorded = {.relative = 0.01}});
  call.outputs.push_back({.place = "forward.output.1",
                          .dtype = "float32",
                          .has_recorded = true,
                          .recorded = {.relative = 0.001}});
  EXPECT_THAT(WhichIsNearer(call, nullptr).sentence, HasSubstr("forward.output.1 is"));
}

TEST(NearerTest, ALineKeepsEverything) {
  OutputError output = Cancelled();
  output.enlarged = 0.25;
  const Result<ReplayedCall> read = ReplayedCallFromLine(ToLine(CallWith(output)));
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->outputs.size(), 1U);
  EXPECT_EQ(read->outputs[0].enlarged, 0.25);
  EXPECT_EQ(read->outputs[0].recorded.relative, output.recorded.relative);
}

}  // namespace
}  // namespace msprobe::isolation
