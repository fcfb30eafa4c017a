#include "engine/kernels/diff_histogram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/threads.h"
#include "engine/kernels/diff_histogram_scalar.h"
#include "tests/kernels/random_tensor.h"

namespace msprobe::kernels {
namespace {

using testing::ElementsAre;

std::vector<int64_t> IndicesOf(const DiffHistogram::Places& places) {
  std::vector<int64_t> indices;
  for (const DiffHistogram::Place& place : places.span()) indices.push_back(place.index);
  return indices;
}

// Everything that a histogram holds, NaN included.
std::vector<uint64_t> AllOf(const DiffHistogram& h) {
  std::vector<uint64_t> all;
  for (const int64_t n : {h.count, h.equal, h.nonfinite}) all.push_back(static_cast<uint64_t>(n));
  for (const int64_t n : h.decades) all.push_back(static_cast<uint64_t>(n));
  for (const DiffHistogram::Places* places : {&h.first, &h.worst}) {
    for (const DiffHistogram::Place& p : places->span()) {
      all.push_back(static_cast<uint64_t>(p.index));
      // The sign and the payload of a NaN are those of the hardware.
      for (const double v : {p.target, p.golden, p.distance})
        all.push_back(std::isnan(v) ? 1 : Bits(v));
    }
  }
  return all;
}

DiffHistogram Scalar(const TensorView& target, const TensorView& golden) {
  const auto bytes = [](const TensorView& view) {
    std::vector<uint8_t> out(static_cast<size_t>(view.numel()) * DTypeSize(view.dtype));
    CopyContiguous(view, out.data());
    return out;
  };
  const std::vector<uint8_t> t = bytes(target), g = bytes(golden);
  DiffHistogram h;
  ChunkDifferencesScalar({target.dtype, golden.dtype, t.data(), g.data(),
                          target.numel() * ValuesPerElement(target.dtype)},
                         0, &h);
  return h;
}

TEST(CountDifferences, EqualsScalarOnEveryTarget) {
  ThreadPool pool(3);
  ForEachTarget([&](const char* target) {
    Random random(5);
    for (int i = 0; i < 400; ++i) {
      const DType dtype = static_cast<DType>(i % kDTypeCount);
      const RandomTensor t = MakeRandomTensor(
          random, dtype, i % 3 ? Values::kPlaced : Values::kAnyBits, i % 40 ? 6000 : 200000);
      RandomTensor g = t;
      // Some elements get other bits; every tenth tensor stays the same.
      for (size_t k = 0; i % 10 != 0 && k < g.bytes.size(); k += 1 + random() % 97)
        g.bytes[k] ^= static_cast<uint8_t>(dtype == DType::kBool ? 1 : 1u << random() % 8);
      const Result<DiffHistogram> h = CountDifferences(t.view(), g.view(), i % 2 ? &pool : nullptr);
      ASSERT_TRUE(h.ok());
      ASSERT_EQ(AllOf(*h), AllOf(Scalar(t.view(), g.view()))) << target << " " << t.Text();
    }
  });
}

TEST(CountDifferences, OfTwoDTypes) {
  const double t[] = {1, 2, 1e300, 3};
  const float g[] = {1, 2.5, 1, 3};
  const int64_t n = 4;
  const DiffHistogram h =
      *CountDifferences(Flat(t, DType::kFloat64, n), Flat(g, DType::kFloat32, n));
  EXPECT_EQ(h.equal, 2);
  EXPECT_EQ(h.decades[-1 - DiffHistogram::kLowest], 1);
  EXPECT_EQ(h.decades.back(), 1);  // what is larger counts in the last one
  EXPECT_THAT(IndicesOf(h.worst), ElementsAre(2, 1));
}

TEST(CountDifferences, DecadesBeginAtPowersOfTen) {
  for (int k = DiffHistogram::kLowest + 1; k <= DiffHistogram::kHighest; ++k) {
    const double power = std::stod("1e" + std::to_string(k));
    const auto decade = static_cast<size_t>(k - DiffHistogram::kLowest);
    EXPECT_EQ(DecadeOf(power), decade) << k;
    EXPECT_EQ(DecadeOf(std::nextafter(power, 0)), decade - 1) << k;
    EXPECT_EQ(DecadeOf(9.9 * power), decade) << k;
  }
  EXPECT_EQ(DecadeOf(5e-324), 0u);
  EXPECT_EQ(DecadeOf(1e-60), 0u);
}

TEST(CountDifferences, NamesTheFirstAndTheWorst) {
  const float nan = std::nanf(""), inf = static_cast<float>(kInf);
  //                 0    1    2  3  4    5  6    7  8     9
  const float t[] = {nan, 1.5, 2, 0, nan, 5, 6.5, 7, -inf, 9.25};
  const float g[] = {nan, 1, 2, -0.f, 4, 5.25, 6, 8, -inf, 9};
  const int64_t n = 10;
  const DiffHistogram h =
      *CountDifferences(Flat(t, DType::kFloat32, n), Flat(g, DType::kFloat32, n));
  EXPECT_EQ(h.count, 10);
  EXPECT_EQ(h.equal, 4);
  EXPECT_EQ(h.nonfinite, 1);
  EXPECT_EQ(h.decades[-1 - DiffHistogram::kLowest], 4);
  EXPECT_EQ(h.decades[-DiffHistogram::kLowest], 1);
  EXPECT_THAT(IndicesOf(h.first), ElementsAre(1, 4, 5, 6, 7));
  EXPECT_THAT(IndicesOf(h.worst), ElementsAre(4, 7, 1, 6, 5));
  EXPECT_EQ(h.worst.place[1].target, 7);
  EXPECT_EQ(h.worst.place[1].golden, 8);
  EXPECT_EQ(h.worst.place[1].distance, 1);
}

TEST(CountDifferences, WideIntegersAreTakenApartBeforeTheyAreRounded) {
  const int64_t t[] = {INT64_MAX, INT64_MIN}, g[] = {INT64_MAX - 3, INT64_MAX};
  const int64_t n = 2;
  const DiffHistogram h = *CountDifferences(Flat(t, DType::kInt64, n), Flat(g, DType::kInt64, n));
  EXPECT_EQ(h.decades[-DiffHistogram::kLowest], 1);
  EXPECT_EQ(h.decades[19 - DiffHistogram::kLowest], 1);
}

TEST(CountDifferences, RefusesOtherSizes) {
  const float values[3] = {};
  const int64_t two = 2, three = 3, none = 0;
  EXPECT_FALSE(
      CountDifferences(Flat(values, DType::kFloat32, two), Flat(values, DType::kFloat32, three))
          .ok());
  EXPECT_EQ(
      CountDifferences(Flat(values, DType::kFloat32, none), Flat(values, DType::kFloat32, none))
          ->count,
      0);
}

}  // namespace
}  // namespace msprobe::kernels
