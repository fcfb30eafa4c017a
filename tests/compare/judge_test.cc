#include "engine/compare/judge/judge.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/compare/model/rounding.h"
#include "tests/compare/dump_builder.h"

namespace msprobe::compare {
namespace {

using test::DumpBuilder;
using test::kInf;
using test::kNaN;
using test::MustCompare;
using test::Numbers;
using test::OneInput;
using test::Scaled;
using test::Tensor;

// The measure of the first row, without knowledge of the call.
Measure Judge(const Dump& target, const Dump& golden, Mode mode = Mode::kStatistics) {
  Measure m;
  JudgeLeaves(target.leaves[0], golden.leaves[0], mode, {}, &m);
  return m;
}
Measure Judge(const Tensor& target, const Tensor& golden, Mode mode = Mode::kStatistics) {
  return Judge(OneInput(target), OneInput(golden), mode);
}

Differences Between(const Tensor& target, const Tensor& golden) {
  return DifferencesOf(OneInput(target).leaves[0], OneInput(golden).leaves[0]);
}

const Tensor kBase = Numbers(2, -3, 0.25, 10);

TEST(JudgeTest, IdenticalNumbersAreEqual) {
  const Measure m = Judge(kBase, kBase);
  EXPECT_EQ(m.verdict, RowVerdict::kEqual);
  EXPECT_EQ(m.severity, 0);
  EXPECT_EQ(Between(kBase, kBase).max_diff, 0);
}

TEST(JudgeTest, DifferencesAndRelativeErrors) {
  const Differences d = Between(Numbers(3, -3, 0.25, 10), kBase);
  EXPECT_EQ(d.max_diff, 1);
  EXPECT_EQ(d.max_rel, 0.5);
  EXPECT_EQ(d.norm_rel, 0);
  EXPECT_EQ(Between(Numbers(3, 1, 0, 1), Numbers(3, 0, 0, 1)).min_rel, kInf);
}

TEST(JudgeTest, LimitsFollowTheDType) {
  struct Case {
    const char* dtype;
    double within, beyond;  // relative error
  };
  for (const Case& c : {Case{"torch.float64", 1e-14, 1e-12}, Case{"torch.float32", 5e-6, 5e-5},
                        Case{"torch.float16", 5e-3, 5e-2}, Case{"torch.bfloat16", 2e-2, 1e-1},
                        Case{"Float32", 5e-6, 5e-5}}) {
    Tensor golden = kBase;
    golden.DType(c.dtype);
    EXPECT_EQ(Judge(Scaled(golden, c.within), golden).verdict, RowVerdict::kNoise) << c.dtype;
    EXPECT_EQ(Judge(Scaled(golden, c.beyond), golden).verdict, RowVerdict::kDiffers) << c.dtype;
  }
}

TEST(JudgeTest, CoarserDTypeDecides) {
  Tensor half = Scaled(kBase, 5e-3);
  half.DType("torch.float16");
  const Measure m = Judge(half, kBase);
  EXPECT_EQ(m.verdict, RowVerdict::kNoise);
  EXPECT_EQ(m.reason, Reason::kDTypeDiffers);
}

// A mean near zero is a sum that cancels: 1e-9 against -1e-9 is small beside values of size 1.
TEST(JudgeTest, MeanIsHeldAgainstTheValuesItSums) {
  const Tensor golden = Numbers(2, -2, 1e-9, 3);
  EXPECT_EQ(Judge(Numbers(2, -2, -1e-9, 3), golden).verdict, RowVerdict::kNoise);
  EXPECT_EQ(Judge(Numbers(2, -2, 1e-2, 3), golden).verdict, RowVerdict::kDiffers);
}

TEST(JudgeTest, SmallExtremumIsHeldAgainstTheLargerOne) {
  EXPECT_EQ(Judge(Numbers(100, 1e-6, 50, 500), Numbers(100, 2e-6, 50, 500)).verdict,
            RowVerdict::kNoise);
}

TEST(JudgeTest, IntegersAndBoolsAreExact) {
  Tensor golden = Numbers(16777216, 0, 1, 5);
  golden.DType("torch.int64");
  Tensor target = golden;
  target.max += 1;
  EXPECT_EQ(Judge(target, golden).verdict, RowVerdict::kDiffers);
  EXPECT_EQ(Judge(golden, golden).verdict, RowVerdict::kEqual);
}

TEST(JudgeTest, NaNIsNeverEqual) {
  const Tensor nan = Numbers(kNaN, kNaN, kNaN, kNaN);
  const Measure both = Judge(nan, nan);
  EXPECT_EQ(both.verdict, RowVerdict::kUnknown);
  EXPECT_EQ(both.reason, Reason::kBothNaN);
  for (const Measure& m : {Judge(nan, kBase), Judge(kBase, nan)}) {
    EXPECT_EQ(m.verdict, RowVerdict::kDiffers);
    EXPECT_EQ(m.severity, kInf);
  }
}

TEST(JudgeTest, BitsProveNaNEqual) {
  Tensor nan = Numbers(kNaN, kNaN, kNaN, kNaN);
  nan.Print("00112233aabbccdd");
  EXPECT_EQ(Judge(nan, nan).verdict, RowVerdict::kEqual);
  Tensor other = nan;
  other.Print("ffffffffaabbccdd");
  EXPECT_EQ(Judge(nan, other).verdict, RowVerdict::kUnknown);
}

TEST(JudgeTest, SignsOfInfinityMatter) {
  const Tensor up = Numbers(kInf, -1, kInf, kInf), down = Numbers(1, -kInf, -kInf, kInf);
  EXPECT_EQ(Judge(up, down).verdict, RowVerdict::kDiffers);
  EXPECT_EQ(Judge(up, up).verdict, RowVerdict::kEqual);
  EXPECT_EQ(Judge(up, kBase).severity, kInf);
}

TEST(JudgeTest, CountsOfNonFiniteElementsMatter) {
  const ElementCounts kThree{.nan = 3}, kTwo{.nan = 2};
  DumpBuilder t, g;
  t.Call("Torch.f.0.forward").In(kBase).last().counts = &kThree;
  g.Call("Torch.f.0.forward").In(kBase).last().counts = &kTwo;
  const Measure m = Judge(t.Take(), g.Take());
  EXPECT_EQ(m.verdict, RowVerdict::kDiffers);
  EXPECT_EQ(m.reason, Reason::kNonFinite);
}

TEST(JudgeTest, OtherBitsOfEqualNumbersAreNoise) {
  Tensor a = kBase, b = kBase;
  a.Print("0000000000000001"), b.Print("0000000000000002");
  const Measure m = Judge(a, b);
  EXPECT_EQ(m.verdict, RowVerdict::kNoise);
  EXPECT_EQ(m.reason, Reason::kOtherBits);
}

TEST(JudgeTest, ValuesThatOneSideDidNotRecordAreNotCompared) {
  DumpBuilder t, g;
  t.Call("Torch.f.0.forward").In(kBase);
  g.Call("Torch.f.0.forward").In(kBase).last().mean = "null";
  g.last().mean_value = kNaN;
  const Dump target = t.Take(), golden = g.Take();
  EXPECT_EQ(Judge(target, golden).verdict, RowVerdict::kEqual);
  EXPECT_TRUE(std::isnan(DifferencesOf(target.leaves[0], golden.leaves[0]).mean_diff));
}

TEST(JudgeTest, NothingInCommonIsUnknown) {
  Tensor bare = kBase;
  bare.NoStats();
  const Measure m = Judge(bare, bare);
  EXPECT_EQ(m.verdict, RowVerdict::kUnknown);
  EXPECT_EQ(m.reason, Reason::kNoCommonNumber);
  EXPECT_FALSE(IsNeutral(m));
}

TEST(JudgeTest, ShapesCompareSqueezed) {
  Tensor row = kBase, column = kBase, other = kBase;
  row.Shape("[1, 6]"), column.Shape("[6]"), other.Shape("[2, 3]");
  EXPECT_EQ(Judge(row, column).verdict, RowVerdict::kEqual);
  EXPECT_EQ(Judge(row, other).verdict, RowVerdict::kDiffers);
  EXPECT_EQ(Judge(row, other).reason, Reason::kShapeDiffers);
}

TEST(JudgeTest, EmptyTensorsAreEqual) {
  Tensor empty = kBase;
  empty.NoStats().Shape("[0, 3]");
  EXPECT_EQ(Judge(empty, empty).verdict, RowVerdict::kEqual);
}

TEST(JudgeTest, ChecksumsCompareAsText) {
  Tensor a = kBase, b = kBase;
  a.Checksum("0a1b2c3d"), b.Checksum("0a1b2c3d");
  EXPECT_EQ(Judge(a, b, Mode::kChecksum).verdict, RowVerdict::kEqual);
  b.Checksum("0a1b2c3e");
  const Measure m = Judge(a, b, Mode::kChecksum);
  EXPECT_EQ(m.verdict, RowVerdict::kDiffers);
  EXPECT_EQ(m.reason, Reason::kChecksumDiffers);
  EXPECT_EQ(Judge(a, kBase, Mode::kChecksum).verdict, RowVerdict::kUnknown);
}

Measure JudgeValues(const char* type, const char* target, const char* golden) {
  DumpBuilder t, g;
  t.Call("Torch.f.0.forward").Value("p", type, target);
  g.Call("Torch.f.0.forward").Value("p", type, golden);
  return Judge(t.Take(), g.Take());
}

TEST(JudgeTest, PlainValues) {
  EXPECT_EQ(JudgeValues("int", "3", "3").verdict, RowVerdict::kEqual);
  EXPECT_EQ(JudgeValues("int", "3", "4").verdict, RowVerdict::kDiffers);
  EXPECT_EQ(JudgeValues("float", "0.1", "0.1000000001").verdict, RowVerdict::kNoise);
  EXPECT_EQ(JudgeValues("float", "0.1", "0.2").verdict, RowVerdict::kDiffers);
  EXPECT_EQ(JudgeValues("float", "nan", "nan").verdict, RowVerdict::kEqual);
  EXPECT_EQ(JudgeValues("str", "mean", "sum").reason, Reason::kValueDiffers);
  EXPECT_TRUE(IsNeutral(JudgeValues("torch.device", "npu:0", "cuda:0")));
  EXPECT_TRUE(IsNeutral(JudgeValues("torch.dtype", "torch.float16", "torch.float32")));
}

TEST(JudgeTest, SumsOfManyTermsMayRoundMore) {
  const Rounding r = RoundingOf("torch.float32");
  EXPECT_EQ(ExplainedRoundings(r, 0, 1), 64);
  EXPECT_EQ(ExplainedRoundings(r, 4096, 1), 128);
  EXPECT_EQ(ExplainedRoundings(r, 4096, 2), 256);
  EXPECT_LT(ExplainedRoundings(RoundingOf("torch.float16"), 4096, 1),
            8.1);  // accumulated in float32
}

// If x - y nearly cancels, its rounding error is that of x.
TEST(JudgeTest, CancellationIsHeldAgainstWhatWasSubtracted) {
  for (const char* call : {"Torch.sub.0.forward", "Torch.relu.0.forward"}) {
    DumpBuilder t, g;
    t.Call(call).In(Numbers(1000, -1000, 0, 3000)).Out(Numbers(1.1e-4, -1e-4, 0, 3e-4));
    g.Call(call).In(Numbers(1000, -1000, 0, 3000)).Out(Numbers(0.9e-4, -1e-4, 0, 3e-4));
    const Comparison c = MustCompare(t.Take(), g.Take());
    EXPECT_EQ(c.measures[1].verdict, std::string_view(call).find("sub") != std::string_view::npos
                                         ? RowVerdict::kNoise
                                         : RowVerdict::kDiffers)
        << call;
  }
}

TEST(JudgeTest, MemoryThatNobodyWroteIsNotJudged) {
  DumpBuilder t, g;
  t.Call("Torch.empty_like.0.forward").In(kBase).Out(Numbers(9, 0, 1, 9));
  g.Call("Torch.empty_like.0.forward").In(kBase).Out(Numbers(7, 0, 1, 9));
  const Comparison c = MustCompare(t.Take(), g.Take());
  EXPECT_EQ(c.measures[1].reason, Reason::kUninitialised);
  EXPECT_EQ(c.first.pair, -1);
}

kernels::Diff OneWrong(double error, double scale) {
  kernels::Diff d;
  d.count = 100, d.unequal = 1;
  d.max_abs_error = error, d.euclidean = error, d.relative_l2 = error / (scale * 10);
  d.worst_golden = scale, d.worst_target = scale + error;
  return d;
}

TEST(JudgeDiffTest, Elements) {
  Leaf leaf;
  leaf.dtype = "torch.float32";
  Measure m;
  JudgeDiff(OneWrong(1e-6, 1), leaf, leaf, {}, &m);
  EXPECT_EQ(m.verdict, RowVerdict::kNoise);
  JudgeDiff(OneWrong(1e-3, 1), leaf, leaf, {}, &m);
  EXPECT_EQ(m.verdict, RowVerdict::kDiffers);
  kernels::Diff same;
  same.count = 4;
  JudgeDiff(same, leaf, leaf, {}, &m);
  EXPECT_EQ(m.verdict, RowVerdict::kEqual);
  same.nonfinite_target = same.nonfinite_golden = 1;
  JudgeDiff(same, leaf, leaf, {}, &m);
  EXPECT_EQ(m.verdict, RowVerdict::kUnknown);
  same.nonfinite_mismatch = 1;
  JudgeDiff(same, leaf, leaf, {}, &m);
  EXPECT_EQ(m.verdict, RowVerdict::kDiffers);
  EXPECT_EQ(m.severity, kInf);
}

TEST(JudgeDiffTest, TheSmallestOrdinaryElementIsNoExtreme) {
  Leaf leaf;
  leaf.dtype = "torch.float32";
  leaf.max_value = 0.3, leaf.min_value = -1e9;
  // The dump has "-0.64164376", the tensor file the float next to it, which is a little smaller.
  const LeafRest rest{.extremes = 6, .max = 0.3, .min = -0.64164376, .norm = 6};
  kernels::Diff wrong = OneWrong(0.9, static_cast<double>(-0.64164376F));
  ASSERT_LT(wrong.worst_golden, rest.min);
  wrong.relative_l2 = 1e-9;
  Measure m;
  JudgeDiff(wrong, leaf, leaf, {.target_rest = &rest, .golden_rest = &rest}, &m);
  EXPECT_EQ(m.verdict, RowVerdict::kDiffers);
  wrong.worst_golden = -1e9;  // 0.9 is little beside the extremes themselves
  JudgeDiff(wrong, leaf, leaf, {.target_rest = &rest, .golden_rest = &rest}, &m);
  EXPECT_EQ(m.verdict, RowVerdict::kNoise);
}

TEST(JudgeDiffTest, TruthValuesBesideNumbersAreAnotherKind) {
  Leaf mask, scores;
  mask.dtype = "torch.bool";
  scores.dtype = "torch.float32";
  Measure m;
  JudgeDiff(OneWrong(1, 1e9), mask, scores, {}, &m);
  EXPECT_EQ(m.verdict, RowVerdict::kDiffers);
  EXPECT_EQ(m.reason, Reason::kKindDiffers);
}

}  // namespace
}  // namespace msprobe::compare
