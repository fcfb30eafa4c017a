#include "engine/tensor/dlpack.h"

namespace msprobe::dlpack {
namespace {

// DLDataTypeCode values of dlpack.h 1.1 and later.
enum Code : uint8_t {
  kInt = 0,
  kUInt = 1,
  kFloat = 2,
  kBFloat = 4,
  kComplex = 5,
  kBool = 6,
  kFloat8E4M3FN = 10,
  kFloat8E4M3FNUZ = 11,
  kFloat8E5M2 = 12,
  kFloat8E5M2FNUZ = 13,
  kFloat8E8M0FNU = 14,
  kFloat4E2M1FN = 17,
};

}  // namespace

std::optional<DType> ToDType(DLDataType type) {
  if (type.lanes != 1) {
    if (type.code == kFloat4E2M1FN && type.bits == 4 && type.lanes == 2)
      return DType::kFloat4E2M1X2;
    return std::nullopt;
  }
  switch (type.code << 8 | type.bits) {
    case kFloat << 8 | 64:
      return DType::kFloat64;
    case kFloat << 8 | 32:
      return DType::kFloat32;
    case kFloat << 8 | 16:
      return DType::kFloat16;
    case kBFloat << 8 | 16:
      return DType::kBFloat16;
    case kFloat8E4M3FN << 8 | 8:
      return DType::kFloat8E4M3FN;
    case kFloat8E5M2 << 8 | 8:
      return DType::kFloat8E5M2;
    case kFloat8E4M3FNUZ << 8 | 8:
      return DType::kFloat8E4M3FNUZ;
    case kFloat8E5M2FNUZ << 8 | 8:
      return DType::kFloat8E5M2FNUZ;
    case kFloat8E8M0FNU << 8 | 8:
      return DType::kFloat8E8M0FNU;
    case kUInt << 8 | 8:
      return DType::kUInt8;
    case kUInt << 8 | 16:
      return DType::kUInt16;
    case kUInt << 8 | 32:
      return DType::kUInt32;
    case kUInt << 8 | 64:
      return DType::kUInt64;
    case kInt << 8 | 8:
      return DType::kInt8;
    case kInt << 8 | 16:
      return DType::kInt16;
    case kInt << 8 | 32:
      return DType::kInt32;
    case kInt << 8 | 64:
      return DType::kInt64;
    case kBool << 8 | 8:
      return DType::kBool;
    case kComplex << 8 | 32:
      return DType::kComplex32;
    case kComplex << 8 | 64:
      return DType::kComplex64;
    case kComplex << 8 | 128:
      return DType::kComplex128;
    default:
      return std::nullopt;
  }
}

std::optional<TensorView> ToView(const DLTensor& tensor) {
  const std::optional<DType> dtype = ToDType(tensor.dtype);
  if (!dtype) return std::nullopt;
  return TensorView{.data = static_cast<const char*>(tensor.data) + tensor.byte_offset,
                    .dtype = *dtype,
                    .ndim = tensor.ndim,
                    .shape = tensor.shape,
                    .strides = tensor.strides};
}

}  // namespace msprobe::dlpack
