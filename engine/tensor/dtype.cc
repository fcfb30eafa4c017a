#include "engine/tensor/dtype.h"

#include <array>

namespace msprobe {
namespace {

struct Info {
  std::string_view torch_name;
  size_t size;
  DTypeKind kind;
};

// In the order of the enum.
constexpr std::array<Info, kDTypeCount> kInfo = {{
    {"torch.float64", 8, DTypeKind::kFloat},
    {"torch.float32", 4, DTypeKind::kFloat},
    {"torch.float16", 2, DTypeKind::kFloat},
    {"torch.bfloat16", 2, DTypeKind::kFloat},
    {"torch.float8_e4m3fn", 1, DTypeKind::kFloat},
    {"torch.float8_e5m2", 1, DTypeKind::kFloat},
    {"torch.float8_e4m3fnuz", 1, DTypeKind::kFloat},
    {"torch.float8_e5m2fnuz", 1, DTypeKind::kFloat},
    {"torch.float8_e8m0fnu", 1, DTypeKind::kFloat},
    {"torch.float4_e2m1fn_x2", 1, DTypeKind::kFloat},
    {"torch.uint8", 1, DTypeKind::kUnsigned},
    {"torch.uint16", 2, DTypeKind::kUnsigned},
    {"torch.uint32", 4, DTypeKind::kUnsigned},
    {"torch.uint64", 8, DTypeKind::kUnsigned},
    {"torch.int8", 1, DTypeKind::kSigned},
    {"torch.int16", 2, DTypeKind::kSigned},
    {"torch.int32", 4, DTypeKind::kSigned},
    {"torch.int64", 8, DTypeKind::kSigned},
    {"torch.bool", 1, DTypeKind::kBool},
    {"torch.complex64", 8, DTypeKind::kComplex},
    {"torch.complex128", 16, DTypeKind::kComplex},
    {"torch.complex32", 4, DTypeKind::kComplex},
}};
constexpr std::string_view kPrefix = "torch.";

}  // namespace

size_t DTypeSize(DType dtype) { return kInfo[static_cast<size_t>(dtype)].size; }
DTypeKind DTypeKindOf(DType dtype) { return kInfo[static_cast<size_t>(dtype)].kind; }
std::string_view DTypeTorchName(DType dtype) {
  return kInfo[static_cast<size_t>(dtype)].torch_name;
}
std::string_view DTypeShortName(DType dtype) {
  return DTypeTorchName(dtype).substr(kPrefix.size());
}

std::optional<DType> DTypeFromTorchName(std::string_view name) {
  if (name.substr(0, kPrefix.size()) == kPrefix) name.remove_prefix(kPrefix.size());
  for (size_t i = 0; i < kInfo.size(); ++i) {
    if (kInfo[i].torch_name.substr(kPrefix.size()) == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

bool IsNarrowFloat(DType dtype) {
  return DTypeKindOf(dtype) == DTypeKind::kFloat && dtype != DType::kFloat64;
}

bool IsNarrowFloat(std::string_view name) {
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  if (name == "float32" || name == "bfloat16") return true;  // most are
  const std::optional<DType> dtype = DTypeFromTorchName(name);
  return dtype && IsNarrowFloat(*dtype);
}

}  // namespace msprobe
