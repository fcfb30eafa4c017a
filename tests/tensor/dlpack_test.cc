#include "engine/tensor/dlpack.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <tuple>

namespace msprobe::dlpack {
namespace {

// code, bits, lanes as PyTorch exports each dtype (DLDataTypeCode of dlpack.h 1.1).
const std::map<DType, std::tuple<int, int, int>> kExported = {
    {DType::kInt8, {0, 8, 1}},           {DType::kInt16, {0, 16, 1}},
    {DType::kInt32, {0, 32, 1}},         {DType::kInt64, {0, 64, 1}},
    {DType::kUInt8, {1, 8, 1}},          {DType::kUInt16, {1, 16, 1}},
    {DType::kUInt32, {1, 32, 1}},        {DType::kUInt64, {1, 64, 1}},
    {DType::kFloat16, {2, 16, 1}},       {DType::kFloat32, {2, 32, 1}},
    {DType::kFloat64, {2, 64, 1}},       {DType::kBFloat16, {4, 16, 1}},
    {DType::kComplex32, {5, 32, 1}},     {DType::kComplex64, {5, 64, 1}},
    {DType::kComplex128, {5, 128, 1}},   {DType::kBool, {6, 8, 1}},
    {DType::kFloat8E4M3FN, {10, 8, 1}},  {DType::kFloat8E4M3FNUZ, {11, 8, 1}},
    {DType::kFloat8E5M2, {12, 8, 1}},    {DType::kFloat8E5M2FNUZ, {13, 8, 1}},
    {DType::kFloat8E8M0FNU, {14, 8, 1}}, {DType::kFloat4E2M1X2, {17, 4, 2}},
};

TEST(DLPack, EveryDTypeAndNoOtherType) {
  EXPECT_EQ(kExported.size(), static_cast<size_t>(kDTypeCount));
  std::map<std::tuple<int, int, int>, DType> known;
  for (const auto& [dtype, type] : kExported) known[type] = dtype;
  size_t found = 0;
  for (int code = 0; code < 256; ++code) {
    for (int bits = 0; bits < 256; ++bits) {
      for (const int lanes : {0, 1, 2, 4, 65535}) {
        const std::optional<DType> dtype = ToDType(
            {static_cast<uint8_t>(code), static_cast<uint8_t>(bits), static_cast<uint16_t>(lanes)});
        const auto want = known.find({code, bits, lanes});
        ASSERT_EQ(dtype.has_value(), want != known.end()) << code << " " << bits << " " << lanes;
        if (!dtype) continue;
        EXPECT_EQ(*dtype, want->second);
        ++found;
      }
    }
  }
  EXPECT_EQ(found, kExported.size());
}

TEST(DLPack, ViewIsTheTensor) {
  int32_t data[8] = {};
  int64_t shape[] = {2, 3}, strides[] = {4, -1};
  const DLTensor tensor{.data = data,
                        .device = {kCpuDevice, 0},
                        .ndim = 2,
                        .dtype = {0, 32, 1},
                        .shape = shape,
                        .strides = strides,
                        .byte_offset = 8};
  const std::optional<TensorView> view = ToView(tensor);
  ASSERT_TRUE(view);
  EXPECT_EQ(view->data, data + 2);
  EXPECT_EQ(view->dtype, DType::kInt32);
  EXPECT_EQ(view->ndim, 2);
  EXPECT_EQ(view->shape, shape);
  EXPECT_EQ(view->strides, strides);
}

TEST(DLPack, ScalarWithoutStridesAndEmptyWithoutData) {
  double value = 0;
  const std::optional<TensorView> scalar =
      ToView({.data = &value, .device = {kCpuDevice, 0}, .ndim = 0, .dtype = {2, 64, 1}});
  ASSERT_TRUE(scalar);
  EXPECT_EQ(scalar->numel(), 1);
  EXPECT_TRUE(scalar->IsContiguous());
  int64_t none[] = {0};
  const std::optional<TensorView> empty = ToView(
      {.data = nullptr, .device = {kCpuDevice, 0}, .ndim = 1, .dtype = {2, 64, 1}, .shape = none});
  ASSERT_TRUE(empty);
  EXPECT_EQ(empty->numel(), 0);
}

TEST(DLPack, UnknownTypeIsNoView) {
  int64_t shape[] = {1};
  EXPECT_FALSE(ToView({.ndim = 1, .dtype = {3, 64, 1}, .shape = shape}));  // an opaque handle
}

// The structures are an ABI: they must have the layout of dlpack.h on a 64-bit machine.
TEST(DLPack, LayoutOfTheAbi) {
  EXPECT_EQ(sizeof(DLDataType), 4u);
  EXPECT_EQ(offsetof(DLDataType, lanes), 2u);
  EXPECT_EQ(sizeof(DLTensor), 48u);
  EXPECT_EQ(offsetof(DLTensor, device), 8u);
  EXPECT_EQ(offsetof(DLTensor, ndim), 16u);
  EXPECT_EQ(offsetof(DLTensor, dtype), 20u);
  EXPECT_EQ(offsetof(DLTensor, shape), 24u);
  EXPECT_EQ(offsetof(DLTensor, strides), 32u);
  EXPECT_EQ(offsetof(DLTensor, byte_offset), 40u);
  EXPECT_EQ(offsetof(ExchangeApi, previous), 8u);
  EXPECT_EQ(offsetof(ExchangeApi, dltensor_from_py_object), 40u);
  EXPECT_EQ(sizeof(ExchangeApi), 56u);
}

}  // namespace
}  // namespace msprobe::dlpack
