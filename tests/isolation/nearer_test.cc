#include "engine/isolation/nearer.h"

#include <gmock/gmock.h>

#include <vector>

#include "engine/base/messages/message.h"

namespace msprobe::isolation {
namespace {

using ::testing::EndsWith;
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

// A result whose bound is known.
OutputError Bounded(accuracy::RoundingVerdict::Kind kind) {
  static const std::vector<float> recorded = {3e-9F, -1e-9F};
  static const std::vector<double> exact = {1e-9, 1e-9};
  const TensorView stored = View(recorded, DType::kFloat32);
  Result<OutputError> output =
      MeasureOutput("backward.output.0", &stored, stored, View(exact, DType::kFloat64));
  EXPECT_TRUE(output.ok());
  output->rounding = {.kind = kind, .worst = 1, .error = 300, .bound = 40, .from = "sum (8 terms)"};
  return *std::move(output);
}

TEST(NearerTest, TheBoundOfTheOperationDecides) {
  const OutputError exact = Bounded(accuracy::RoundingVerdict::Kind::kPass);
  EXPECT_TRUE(IsExact(exact));
  const NearerVerdict alone = WhichIsNearer(CallWith(exact), nullptr);
  EXPECT_EQ(alone.nearer, Nearer::kTarget);
  EXPECT_THAT(alone.sentence.English(), HasSubstr("rounding of its inputs"));
  const ReplayedCall golden = CallWith(exact);
  EXPECT_EQ(WhichIsNearer(CallWith(exact), &golden).nearer, Nearer::kBoth);

  const OutputError wrong = Bounded(accuracy::RoundingVerdict::Kind::kError);
  EXPECT_FALSE(IsExact(wrong));
  const NearerVerdict found = WhichIsNearer(CallWith(wrong), nullptr);
  EXPECT_EQ(found.nearer, Nearer::kNeither);
  EXPECT_THAT(found.sentence.English(),
              HasSubstr("300 roundings at element 1 where 40 are explained"));
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
  EXPECT_THAT(WhichIsNearer(call, nullptr).sentence.English(), HasSubstr("forward.output.1 is"));
}

TEST(NearerTest, ALineKeepsEverything) {
  const OutputError output = Bounded(accuracy::RoundingVerdict::Kind::kError);
  const Result<ReplayedCall> read = ReplayedCallFromLine(ToLine(CallWith(output)));
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->outputs.size(), 1U);
  EXPECT_EQ(read->outputs[0].rounding.kind, output.rounding.kind);
  EXPECT_EQ(read->outputs[0].rounding.worst, 1);
  EXPECT_EQ(read->outputs[0].rounding.bound, 40);
  EXPECT_EQ(read->outputs[0].rounding.from, "sum (8 terms)");
  EXPECT_EQ(read->outputs[0].recorded.relative, output.recorded.relative);
}

TEST(NearerTest, OfOtherCallsFloat64DoesNotTell) {
  const NearerVerdict other = OfOtherCalls({Nearer::kBoth, "both sides are as exact as ..."_t});
  EXPECT_EQ(other.nearer, Nearer::kOtherCalls);
  EXPECT_THAT(other.sentence.English(),
              HasSubstr("does not tell which one is right; both sides are as exact"));
  const NearerVerdict unknown = OfOtherCalls({Nearer::kUnknown, "record with task tensor"_t});
  EXPECT_EQ(unknown.nearer, Nearer::kOtherCalls);
  EXPECT_THAT(unknown.sentence.English(), EndsWith("which one is right"));
}

}  // namespace
}  // namespace msprobe::isolation
