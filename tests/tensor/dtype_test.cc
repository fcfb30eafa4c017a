#include "engine/tensor/dtype.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace msprobe {
namespace {

struct Row {
  DType dtype;
  std::string name;
  size_t size;
  DTypeKind kind;
};

// From PyTorch's documentation: torch.<name>, itemsize, kind of value.
const Row kRows[] = {
    {DType::kFloat64, "float64", 8, DTypeKind::kFloat},
    {DType::kFloat32, "float32", 4, DTypeKind::kFloat},
    {DType::kFloat16, "float16", 2, DTypeKind::kFloat},
    {DType::kBFloat16, "bfloat16", 2, DTypeKind::kFloat},
    {DType::kFloat8E4M3FN, "float8_e4m3fn", 1, DTypeKind::kFloat},
    {DType::kFloat8E5M2, "float8_e5m2", 1, DTypeKind::kFloat},
    {DType::kFloat8E4M3FNUZ, "float8_e4m3fnuz", 1, DTypeKind::kFloat},
    {DType::kFloat8E5M2FNUZ, "float8_e5m2fnuz", 1, DTypeKind::kFloat},
    {DType::kFloat8E8M0FNU, "float8_e8m0fnu", 1, DTypeKind::kFloat},
    {DType::kFloat4E2M1X2, "float4_e2m1fn_x2", 1, DTypeKind::kFloat},
    {DType::kUInt8, "uint8", 1, DTypeKind::kUnsigned},
    {DType::kUInt16, "uint16", 2, DTypeKind::kUnsigned},
    {DType::kUInt32, "uint32", 4, DTypeKind::kUnsigned},
    {DType::kUInt64, "uint64", 8, DTypeKind::kUnsigned},
    {DType::kInt8, "int8", 1, DTypeKind::kSigned},
    {DType::kInt16, "int16", 2, DTypeKind::kSigned},
    {DType::kInt32, "int32", 4, DTypeKind::kSigned},
    {DType::kInt64, "int64", 8, DTypeKind::kSigned},
    {DType::kBool, "bool", 1, DTypeKind::kBool},
    {DType::kComplex64, "complex64", 8, DTypeKind::kComplex},
    {DType::kComplex128, "complex128", 16, DTypeKind::kComplex},
    {DType::kComplex32, "complex32", 4, DTypeKind::kComplex},
};

TEST(DType, TableHasEveryDTypeOnce) {
  std::set<DType> dtypes;
  for (const Row& row : kRows) {
    EXPECT_LT(static_cast<int>(row.dtype), kDTypeCount);
    EXPECT_TRUE(dtypes.insert(row.dtype).second) << row.name;
  }
  EXPECT_EQ(dtypes.size(), static_cast<size_t>(kDTypeCount));
}

TEST(DType, SizeKindAndNames) {
  for (const Row& row : kRows) {
    EXPECT_EQ(DTypeSize(row.dtype), row.size) << row.name;
    EXPECT_EQ(DTypeKindOf(row.dtype), row.kind) << row.name;
    EXPECT_EQ(DTypeShortName(row.dtype), row.name);
    EXPECT_EQ(DTypeTorchName(row.dtype), "torch." + row.name);
  }
}

struct FormatNumbers {
  DType dtype;
  double epsilon, smallest_normal, smallest, largest;
};

// From torch.finfo: eps, smallest_normal, smallest_subnormal, max.
TEST(DType, FloatFormats) {
  const FormatNumbers rows[] = {
      {DType::kFloat64, 0x1p-52, 0x1p-1022, 0x1p-1074, 0x1.fffffffffffffp1023},
      {DType::kFloat32, 0x1p-23, 0x1p-126, 0x1p-149, 0x1.fffffep127},
      {DType::kFloat16, 0x1p-10, 0x1p-14, 0x1p-24, 65504},
      {DType::kBFloat16, 0x1p-7, 0x1p-126, 0x1p-133, 0x1.fep127},
      {DType::kFloat8E4M3FN, 0x1p-3, 0x1p-6, 0x1p-9, 448},
      {DType::kFloat8E5M2, 0x1p-2, 0x1p-14, 0x1p-16, 57344},
      {DType::kFloat8E4M3FNUZ, 0x1p-3, 0x1p-7, 0x1p-10, 240},
      {DType::kFloat8E5M2FNUZ, 0x1p-2, 0x1p-15, 0x1p-17, 57344},
      {DType::kFloat8E8M0FNU, 1, 0x1p-127, 0x1p-127, 0x1p127},
      {DType::kFloat4E2M1X2, 0x1p-1, 1, 0x1p-1, 6},
      {DType::kComplex64, 0x1p-23, 0x1p-126, 0x1p-149, 0x1.fffffep127},
      {DType::kComplex128, 0x1p-52, 0x1p-1022, 0x1p-1074, 0x1.fffffffffffffp1023},
      {DType::kComplex32, 0x1p-10, 0x1p-14, 0x1p-24, 65504},
  };
  int without = kDTypeCount;
  for (const FormatNumbers& row : rows) {
    const FloatFormat& format = FactsOf(row.dtype).format;
    EXPECT_EQ(DTypeEpsilon(row.dtype), row.epsilon) << DTypeTorchName(row.dtype);
    EXPECT_EQ(format.epsilon(), row.epsilon) << DTypeTorchName(row.dtype);
    EXPECT_EQ(2 * format.roundoff(), row.epsilon) << DTypeTorchName(row.dtype);
    EXPECT_EQ(format.smallest_normal(), row.smallest_normal) << DTypeTorchName(row.dtype);
    EXPECT_EQ(format.smallest(), row.smallest) << DTypeTorchName(row.dtype);
    EXPECT_EQ(format.largest, row.largest) << DTypeTorchName(row.dtype);
    --without;
  }
  for (int i = 0; i < kDTypeCount; ++i) without -= DTypeEpsilon(static_cast<DType>(i)) == 0;
  EXPECT_EQ(without, 0);  // integers and bool are exact
}

TEST(DType, FoundByNameWithOrWithoutThePrefix) {
  for (const Row& row : kRows) {
    EXPECT_EQ(DTypeFromTorchName(row.name), row.dtype) << row.name;
    EXPECT_EQ(DTypeFromTorchName("torch." + row.name), row.dtype) << row.name;
  }
}

TEST(DType, OtherNamesAreUnknown) {
  for (const char* name :
       {"", "torch.", "torch", "float", "Float32", "float32 ", " float32", "float3", "float322",
        "torch.torch.float32", "numpy.float32", "torch.qint8", "torch.float32\n"})
    EXPECT_EQ(DTypeFromTorchName(name), std::nullopt) << name;
}

}  // namespace
}  // namespace msprobe
