#include "engine/kernels/ratio.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/threads.h"
#include "engine/kernels/chunks.h"
#include "engine/kernels/ratio_scalar.h"
#include "tests/kernels/random_tensor.h"

namespace msprobe::kernels {
namespace {

constexpr DType kFloats[] = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16};

std::vector<double> DecodedView(const TensorView& view) {
  const size_t size = DTypeSize(view.dtype);
  std::vector<uint8_t> bytes(static_cast<size_t>(view.numel()) * size);
  CopyContiguous(view, bytes.data());
  std::vector<double> values(static_cast<size_t>(view.numel()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = ElementToDouble(view.dtype, bytes.data() + i * size);
  return values;
}

RatioStats Ratio(const std::vector<double>& t, const std::vector<double>& g, double floor = 1e-4) {
  const auto n = static_cast<int64_t>(t.size());
  return ComputeRatio(Flat(t.data(), DType::kFloat64, n), Flat(g.data(), DType::kFloat64, n),
                      floor);
}

TEST(ComputeRatio, MeasuresBothDirections) {
  EXPECT_EQ(Ratio({1, 2, 3}, {1, 2, 3}), (RatioStats{.count = 3}));
  EXPECT_EQ(Ratio({2}, {1}).ratio, 2);
  EXPECT_EQ(Ratio({1}, {2}).ratio, 2);
  EXPECT_EQ(Ratio({1}, {2}).error, 0.5);
  EXPECT_EQ(Ratio({-1, 5}, {-2, 4}).signed_error, 0.5 + 0.25);
}

TEST(ComputeRatio, SmallNumbersCountAsTheFloor) {
  EXPECT_EQ(Ratio({1e-7}, {3e-5}).ratio, 1);
  EXPECT_EQ(Ratio({1e-7}, {3e-5}).different, 1);
  EXPECT_DOUBLE_EQ(Ratio({0}, {1}).ratio, 1e4);
  EXPECT_EQ(Ratio({0}, {1e-30}, 0).ratio, kInf);
  EXPECT_EQ(Ratio({0}, {-0.0}, 0).different, 0);
}

TEST(ComputeRatio, SignsCountAboveTheFloor) {
  EXPECT_EQ(Ratio({1}, {-1}).flips, 1);
  EXPECT_EQ(Ratio({1e-6}, {-1e-6}).flips, 0);
  EXPECT_EQ(Ratio({5}, {-1e-5}).flips, 1);
  EXPECT_EQ(Ratio({kInf}, {-kInf}).flips, 1);
}

TEST(ComputeRatio, NanAndInfinityOnOneSideAreNotHidden) {
  const double nan = std::nan("");
  const RatioStats r = Ratio({nan, nan, kInf, kInf, 1, nan}, {nan, 1, kInf, 1, -kInf, kInf});
  EXPECT_EQ(r.nan, 2);
  EXPECT_EQ(r.inf, 2);
  EXPECT_EQ(r.different, 4);
  EXPECT_EQ(r.ratio, 1);
}

// The largest ratio stands anywhere, also far before the end of a large tensor.
TEST(ComputeRatio, NoPartOfALargeTensorIsLeftOut) {
  std::vector<double> golden(500000, 1.0);
  for (const size_t at : {size_t{0}, size_t{4095}, size_t{4096}, size_t{250000}, size_t{499999}}) {
    std::vector<double> target = golden;
    target[at] = 3;
    EXPECT_EQ(Ratio(target, golden).ratio, 3) << at;
  }
}

RatioStats RatioOracle(const std::vector<double>& t, const std::vector<double>& g, double floor) {
  return FoldChunks<RatioNode, NoScratch>(
             static_cast<int64_t>(t.size()), nullptr,
             [&](int64_t first, int64_t n, int64_t /*chunk*/, NoScratch&) {
               return RatioOfChunkScalar(t.data() + first, g.data() + first, n, floor);
             })
      .stats;
}

// Equal, where NaN (the sum of errors that are too large) equals NaN.
bool SameRatio(RatioStats a, RatioStats b) {
  if (std::isnan(a.signed_error) && std::isnan(b.signed_error)) a.signed_error = b.signed_error = 0;
  return a == b;
}

TEST(ComputeRatio, EqualsThePlainLoopOnEveryTarget) {
  ThreadPool pool(3);
  ForEachTarget([&](const char* name) {
    Random random(11);
    for (int i = 0; i < 300; ++i) {
      const DType dtype = i % 2 ? kFloats[random() % 4] : static_cast<DType>(i % kDTypeCount);
      RandomTensor t = MakeRandomTensor(random, dtype, static_cast<Values>(i % 3), 90000);
      RandomTensor g = t;
      if (DTypeKindOf(dtype) == DTypeKind::kComplex || dtype == DType::kFloat4E2M1X2) {
        EXPECT_EQ(ComputeRatio(t.view(), g.view(), 0).count, 0);
        continue;
      }
      // Half of the elements stay equal; the layout of the other side differs.
      for (size_t k = 0; k < t.bytes.size(); ++k) {
        if (random() % 16 == 0 && dtype != DType::kBool) t.bytes[k] ^= 1 << random() % 8;
      }
      const std::vector<double> tv = DecodedView(t.view()), gv = DecodedView(g.view());
      if (tv.empty()) continue;
      const double floor = random() % 3 ? 1e-3 : 0;
      const auto n = static_cast<int64_t>(gv.size());
      const RatioStats expected = RatioOracle(tv, gv, floor);
      EXPECT_TRUE(SameRatio(ComputeRatio(t.view(), g.view(), floor, &pool), expected))
          << name << t.Text();
      EXPECT_TRUE(
          SameRatio(ComputeRatio(t.view(), Flat(gv.data(), DType::kFloat64, n), floor), expected))
          << name << t.Text();
    }
  });
}

}  // namespace
}  // namespace msprobe::kernels
