#include "engine/tensor/tensor_slice.h"

#include <gmock/gmock.h>

#include <limits>
#include <numeric>

namespace msprobe {
namespace {

using ::testing::HasSubstr;

// The elements of arange(24).reshape(2, 3, 4) in the slice, or the error message.
std::string Take(std::string_view text) {
  std::vector<int64_t> data(24);
  std::iota(data.begin(), data.end(), 0);
  const int64_t shape[] = {2, 3, 4}, strides[] = {12, 4, 1};
  const TensorView view{data.data(), DType::kInt64, 3, shape, strides};
  const Result<TensorSlice> slice = TensorSlice::Parse(text);
  if (!slice.ok()) return slice.status().message();
  const Result<SlicedView> part = slice->Apply(view);
  if (!part.ok()) return part.status().message();
  std::string out;
  AppendElements(&out, part->view(), 100);
  for (char& c : out) c = c == '\n' ? ' ' : c;
  return out;
}

TEST(TensorSlice, AsNumPyDoes) {
  EXPECT_EQ(Take("0,1,2"), "6");
  EXPECT_EQ(Take("-1,-1"), "[20, 21, 22, 23]");
  EXPECT_EQ(Take("1,:,3"), "[15, 19, 23]");
  EXPECT_EQ(Take("...,0"), "[[0, 4, 8],  [12, 16, 20]]");
  EXPECT_EQ(Take("0, 0:2, ::2"), "[[0, 2],  [4, 6]]");
  EXPECT_EQ(Take("0,0,::-1"), "[3, 2, 1, 0]");
  EXPECT_EQ(Take("0,0,-2:"), "[2, 3]");
  EXPECT_EQ(Take("0,0,5:9"), "[]");
  EXPECT_EQ(Take("0,0,2:0:-1"), "[2, 1]");
  EXPECT_EQ(Take("[0,0,1:100]"), "[1, 2, 3]");
  EXPECT_EQ(Take("0,0,::9223372036854775807"), "[0]");
}

TEST(TensorSlice, InvalidSlicesAreRefused) {
  EXPECT_THAT(Take("2"), HasSubstr("index 2 is out of range in dimension 0, which has 2"));
  EXPECT_THAT(Take("0,0,0,0"), HasSubstr("has 4 items, the tensor has 3 dimensions: [2, 3, 4]"));
  for (const char* text : {"", "x", "1:2:0", "1:2:3:4", "0,,1", "...,..."}) {
    EXPECT_THAT(Take(text), HasSubstr("start:stop:step")) << text;
  }
}

TEST(AppendElements, KindsAndTheLimit) {
  const float floats[] = {0.1f, 2.0f, std::numeric_limits<float>::infinity(), 1e10f};
  const int64_t four[] = {4}, one[] = {1};
  std::string out;
  AppendElements(&out, {floats, DType::kFloat32, 1, four, one}, 3);
  EXPECT_EQ(out, "[0.1, 2.0, inf]\n... and 1 more");
  out.clear();
  const uint64_t large = ~uint64_t{0};
  AppendElement(&out, DType::kUInt64, &large);
  EXPECT_EQ(out, "18446744073709551615");
}

}  // namespace
}  // namespace msprobe
