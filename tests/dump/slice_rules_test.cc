#include "engine/dump/config/slice_rules.h"

#include <gtest/gtest.h>

#include <numeric>

namespace msprobe::dump {
namespace {

// Applies the rules to a 3 x 4 tensor 0, 1, ..., 11; returns the shape, then the elements.
std::vector<int64_t> Left(std::vector<SliceRule> rules, bool transposed = false,
                          std::optional<SliceRule> request = std::nullopt) {
  std::vector<int64_t> data(12);
  std::iota(data.begin(), data.end(), 0);
  int64_t shape[] = {3, 4}, strides[] = {4, 1};
  if (transposed) std::swap(shape[0], shape[1]), std::swap(strides[0], strides[1]);
  TensorView view{.data = data.data(),
                  .dtype = DType::kInt64,
                  .ndim = 2,
                  .shape = shape,
                  .strides = transposed ? strides : nullptr};
  Slicer slicer(std::move(rules));
  slicer.SetRequest(std::move(request));
  slicer.Apply(&view, shape, strides);
  std::vector<int64_t> left(2 + static_cast<size_t>(view.numel()));
  left[0] = view.shape[0];
  left[1] = view.shape[1];
  CopyContiguous(view, left.data() + 2);
  return left;
}
using Values = std::vector<int64_t>;

TEST(Slicer, AsPythonSlices) {
  const Values whole = {3, 4, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  EXPECT_EQ(Left({}), whole);
  EXPECT_EQ(Left({{.dim = 0}}), whole);
  EXPECT_EQ(Left({{.dim = 2, .begin = 1}}), whole);             // no such dimension
  EXPECT_EQ(Left({{.dim = 0, .size = 4, .begin = 1}}), whole);  // `size` does not match the extent
  EXPECT_EQ(Left({{.dim = 0, .size = 3, .begin = 1, .end = 2}}), Values({1, 4, 4, 5, 6, 7}));
  EXPECT_EQ(Left({{.dim = 1, .begin = -1}}), Values({3, 1, 3, 7, 11}));
  EXPECT_EQ(Left({{.dim = 1, .end = -3}}), Values({3, 1, 0, 4, 8}));
  EXPECT_EQ(Left({{.dim = 0, .begin = -100, .end = 1}}), Values({1, 4, 0, 1, 2, 3}));
  EXPECT_EQ(Left({{.dim = 0, .begin = 2, .end = 100}}), Values({1, 4, 8, 9, 10, 11}));
  EXPECT_EQ(Left({{.dim = 0, .begin = 2, .end = 1}}), Values({0, 4}));
  EXPECT_EQ(Left({{.dim = 0, .begin = 2}, {.dim = 1, .begin = 3}}), Values({1, 1, 11}));
}

TEST(Slicer, TheLastRuleThatFitsCounts) {
  EXPECT_EQ(Left({{.dim = 0, .end = 1}, {.dim = 0, .begin = 2}}), Values({1, 4, 8, 9, 10, 11}));
  EXPECT_EQ(Left({{.dim = 0, .end = 1}, {.dim = 0, .size = 9, .begin = 2}}),
            Values({1, 4, 0, 1, 2, 3}));
  EXPECT_EQ(Left({{.dim = 0, .end = 1}}, false, SliceRule{.size = 3, .begin = 1, .end = 2}),
            Values({1, 4, 4, 5, 6, 7}));
}

TEST(Slicer, AnyStrides) {
  EXPECT_EQ(Left({{.dim = 0, .begin = 3}}, true), Values({1, 3, 3, 7, 11}));
  EXPECT_EQ(Left({{.dim = 1, .begin = 1, .end = 2}}, true), Values({4, 1, 4, 5, 6, 7}));
}

TEST(SliceOfRequest, LiesBehindThoseBefore) {
  const TokenCounts counts = {{"a", 5}, {"b", 2}, {"c", 4}, {"d", 0}};
  EXPECT_EQ(SliceOfRequest(counts, "a"), (SliceRule{.size = 11, .begin = 0, .end = 5}));
  EXPECT_EQ(SliceOfRequest(counts, "c"), (SliceRule{.size = 11, .begin = 7, .end = 11}));
  EXPECT_EQ(SliceOfRequest(counts, "d"), std::nullopt);
  EXPECT_EQ(SliceOfRequest(counts, "e"), std::nullopt);
  EXPECT_EQ(SliceOfRequest({}, "a"), std::nullopt);
}

}  // namespace
}  // namespace msprobe::dump
