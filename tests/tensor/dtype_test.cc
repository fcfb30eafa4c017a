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
