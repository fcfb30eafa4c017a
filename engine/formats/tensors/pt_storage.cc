#include "engine/formats/tensors/pt_storage.h"

namespace msprobe::formats {
namespace {

struct StorageClass {
  std::string_view name;
  DType dtype;
};
constexpr StorageClass kClasses[] = {
    {"DoubleStorage", DType::kFloat64},
    {"FloatStorage", DType::kFloat32},
    {"HalfStorage", DType::kFloat16},
    {"BFloat16Storage", DType::kBFloat16},
    {"LongStorage", DType::kInt64},
    {"IntStorage", DType::kInt32},
    {"ShortStorage", DType::kInt16},
    {"CharStorage", DType::kInt8},
    {"ByteStorage", DType::kUInt8},
    {"BoolStorage", DType::kBool},
    {"ComplexDoubleStorage", DType::kComplex128},
    {"ComplexFloatStorage", DType::kComplex64},
};

}  // namespace

std::optional<DType> DTypeOfStorage(std::string_view storage_class) {
  for (const StorageClass& known : kClasses) {
    if (known.name == storage_class) return known.dtype;
  }
  return std::nullopt;
}

std::string_view StorageOfDType(DType dtype) {
  for (const StorageClass& known : kClasses) {
    if (known.dtype == dtype) return known.name;
  }
  return "";
}

}  // namespace msprobe::formats
