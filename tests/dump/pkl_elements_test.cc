#include "engine/dump/pkl/pkl_elements.h"

#include <gtest/gtest.h>

#include <numeric>

namespace msprobe::dump {
namespace {

template <typename T>
std::vector<T> ValuesOf(const OwnedElements& elements) {
  const T* first = reinterpret_cast<const T*>(elements.bytes.data());
  return {first, first + elements.bytes.size() / sizeof(T)};
}

struct Numbers {
  explicit Numbers(int64_t n) : values(static_cast<size_t>(n)), shape{n} {
    std::iota(values.begin(), values.end(), 0.0F);
  }
  TensorView view() const {
    return {.data = values.data(), .dtype = DType::kFloat32, .ndim = 1, .shape = shape};
  }
  std::vector<float> values;
  int64_t shape[1];
};

TEST(SampleElements, KeepsAllUpTo512) {
  EXPECT_EQ(SampleElements(Numbers(512).view(), 100).shape[0], 512);
  EXPECT_EQ(SampleElements(Numbers(0).view(), 1).shape[0], 0);
}

TEST(SampleElements, KeepsBothEndsAndEachNthBetween) {
  const OwnedElements sample = SampleElements(Numbers(520).view(), 3);
  const std::vector<double> values = ValuesOf<double>(sample);
  ASSERT_EQ(values.size(), 515);  // 512 + ceil(8 / 3)
  EXPECT_EQ(sample.shape[0], 515);
  EXPECT_EQ(values[255], 255);
  EXPECT_EQ(values[256], 256);
  EXPECT_EQ(values[257], 259);
  EXPECT_EQ(values[258], 262);
  EXPECT_EQ(values[259], 264);
  EXPECT_EQ(values.back(), 519);
}

TEST(ElementLists, FollowStridesAndStopAtTheLimit) {
  const Numbers numbers(6);
  const int64_t shape[] = {3, 2}, strides[] = {1, 3};  // the transpose of 2 x 3
  const TensorView view{.data = numbers.values.data(),
                        .dtype = DType::kFloat32,
                        .ndim = 2,
                        .shape = shape,
                        .strides = strides};
  std::string list;
  ListElements(view, 5, &list);
  EXPECT_EQ(list, "0.0, 3.0, 1.0, 4.0, 2.0");
  const float tenth = 0.1F;
  list.clear();
  ListElements({.data = &tenth, .dtype = DType::kFloat32}, 1, &list);
  EXPECT_EQ(list, "0.10000000149011612");
  EXPECT_EQ(ValuesOf<double>(SampleElements(view, 1)), (std::vector<double>{0, 3, 1, 4, 2, 5}));
}

TEST(NumpyElements, AreInADTypeThatNumpyHas) {
  const uint16_t bits[] = {0x3F80, 0xC000};  // 1 and -2 in bfloat16
  const int64_t shape[] = {1, 2};
  TensorView view{.data = bits, .dtype = DType::kBFloat16, .ndim = 2, .shape = shape};
  OwnedElements owned;
  EXPECT_EQ(NumpyElements(view, &owned).dtype, DType::kFloat32);
  EXPECT_EQ(owned.shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(ValuesOf<float>(owned), (std::vector<float>{1, -2}));
  view.dtype = DType::kFloat16;
  EXPECT_EQ(NumpyElements(view, &owned).data, bits);
  view.dtype = DType::kFloat4E2M1X2;  // shapes of this dtype count bytes
  EXPECT_EQ(NumpyElements(view, &owned).dtype, DType::kUInt8);
  EXPECT_EQ(NumpyElements(view, &owned).data, bits);
}

TEST(NumpyElements, ComplexNumbersKeepBothParts) {
  const uint16_t bits[] = {0x3C00, 0xC000};  // 1 - 2i in halves
  OwnedElements owned;
  EXPECT_EQ(NumpyElements({.data = bits, .dtype = DType::kComplex32}, &owned).dtype,
            DType::kComplex64);
  EXPECT_EQ(ValuesOf<float>(owned), (std::vector<float>{1, -2}));
}

TEST(StorageElements, IsTheMemoryFromTheFirstToTheLast) {
  const Numbers numbers(10);
  const int64_t shape[] = {2, 2}, strides[] = {4, 2};
  int64_t offset = -1;
  TensorView view{.data = numbers.values.data() + 1,
                  .dtype = DType::kFloat32,
                  .ndim = 2,
                  .shape = shape,
                  .strides = strides};
  EXPECT_EQ(ValuesOf<float>(StorageElements(view, &offset)),
            (std::vector<float>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(offset, 0);
  const int64_t expanded[] = {0, 0};
  view.strides = expanded;
  EXPECT_EQ(ValuesOf<float>(StorageElements(view, &offset)), (std::vector<float>{1}));
  const int64_t backwards[] = {4, -1};
  view.strides = backwards;
  EXPECT_EQ(ValuesOf<float>(StorageElements(view, &offset)),
            (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(offset, 1);
  const int64_t none[] = {0, 2};
  view.shape = none;
  EXPECT_EQ(StorageElements(view, &offset).shape[0], 0);
}

}  // namespace
}  // namespace msprobe::dump
