// Masked scores: extremes such as -1e9 are no scale for the errors of the other elements.
#include <gmock/gmock.h>

#include "engine/compare/explain/summary.h"
#include "tests/compare/divergence_values.h"

namespace msprobe::compare::test {
namespace {

constexpr double kLowest = -3.4028234663852886e38;

// Marks the last leaf as one with `extremes` masked elements; the others lie within [-4, 4].
void Mask(DumpBuilder& b, int64_t extremes, double error) {
  b.dump().rests.push_back({.leaf = static_cast<uint32_t>(b.dump().leaves.size() - 1),
                            .extremes = extremes,
                            .max = 4 * (1 + error),
                            .min = -4,
                            .norm = 9 * (1 + error)});
}

// Scores that are masked, and their softmax, which is wrong by as much as the scores are.
Dump MaskedAttention(double error, double softmax, int64_t masked = 6) {
  DumpBuilder b;
  const Tensor scores = Numbers(4 * (1 + error), kLowest, kLowest / 2, kInf);
  b.Call("Tensor.masked_fill.0.forward").In(Value(1, error)).Out(scores);
  Mask(b, masked, error);
  b.Call("Functional.softmax.0.forward").In(scores);
  Mask(b, masked, error);
  b.Out(Value(2, softmax));
  return b.Take();
}

TEST(ExtremesTest, TheOtherElementsHaveTheirOwnScale) {
  const Comparison c = MustCompare(MaskedAttention(kRounding, kRounding), MaskedAttention(0, 0));
  EXPECT_EQ(First(c), "none");
  EXPECT_GT(c.measures[1].severity, 1) << "roundings of the scores, not of the smallest number";
  // An error of the scores is not hidden by the mask, and the softmax is not blamed for it.
  const Comparison wrong = MustCompare(MaskedAttention(kWrong, kWrong), MaskedAttention(0, 0));
  EXPECT_EQ(wrong.measures[1].verdict, RowVerdict::kDiffers);
  EXPECT_EQ(wrong.classes[1], CallClass::kInherited);
}

TEST(ExtremesTest, AnotherMaskDiffers) {
  const Comparison c = MustCompare(MaskedAttention(0, 0, 7), MaskedAttention(0, 0, 6));
  EXPECT_EQ(c.measures[1].reason, Reason::kExtremes);
  EXPECT_EQ(First(c), "Tensor.masked_fill.0.forward");
}

TEST(ExtremesTest, WhereOneDumpDoesNotSayTheNumbersDecide) {
  Dump golden = MaskedAttention(0, 0);
  golden.rests.clear();
  EXPECT_EQ(First(MustCompare(MaskedAttention(kRounding, kRounding), std::move(golden))), "none");
}

}  // namespace
}  // namespace msprobe::compare::test
