// --thresholds means the same in every rule that counts in roundings: a stricter number names what
// a looser one calms.
#include "engine/compare/judge/limits.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "engine/compare/explain/explain.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::First;
using test::MustCompare;
using test::Value;

CompareOptions LimitsOf(std::string_view yaml) {
  Result<ThresholdTable> table = ThresholdTable::Parse(yaml, "mine.yaml");
  EXPECT_TRUE(table.ok()) << table.status().message();
  CompareOptions options;
  if (table.ok()) options.thresholds = std::make_shared<ThresholdTable>(*std::move(table));
  return options;
}

TEST(Limits, AreTheShippedOnesInProportion) {
  const CompareOptions options = LimitsOf(
      "rounding: {float32: 16}\noverrides: [{operation: softmax, dtype: float32, rounding: 128}]");
  const Rounding& r = RoundingOf("torch.float32");
  const Limits linear(*options.thresholds, 1, "Functional.linear");
  EXPECT_EQ(linear.Scale(r), 0.25);
  EXPECT_EQ(linear.Explained(r), 16);
  EXPECT_EQ(linear.Explained(r, 4096), 32) << "a sum of many terms too";
  EXPECT_EQ(Limits(*options.thresholds, 3, "Functional.softmax").Explained(r), 384);
  EXPECT_EQ(linear.Explained(RoundingOf("torch.float16")), 8);
  EXPECT_EQ(linear.Scale(RoundingOf("torch.int64")), 1);
  EXPECT_EQ(Limits().Explained(r), 64);
}

// evidence: how sure it is, by the size of the error in what is explained.
TEST(Limits, OfTheConfidence) {
  const auto confidence = [](const CompareOptions& options) {
    const auto run = [](double by) {
      return DumpBuilder().Call("Torch.f.0.forward").In(Value(1)).Out(Value(2, by)).Take();
    };
    const Comparison c = MustCompare(run(1e-4), run(0), options);
    EXPECT_EQ(First(c), "Torch.f.0.forward");
    return c.first.confidence;
  };
  EXPECT_GT(confidence(LimitsOf("rounding: {float32: 1}")), confidence({}));
  EXPECT_LT(confidence(LimitsOf("rounding: {float32: 700}")), confidence({}));
}

}  // namespace
}  // namespace msprobe::compare
