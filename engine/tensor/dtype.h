// Element types: every dtype a PyTorch CPU tensor can have.
//
//   DType d = *DTypeFromTorchName("torch.bfloat16");
//   DTypeSize(d);                 // 2, bytes an element
//   DTypeTorchName(d);            // "torch.bfloat16"
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace msprobe {

enum class DType : uint8_t {
  kFloat64,
  kFloat32,
  kFloat16,
  kBFloat16,
  kFloat8E4M3FN,
  kFloat8E5M2,
  kFloat8E4M3FNUZ,
  kFloat8E5M2FNUZ,
  kFloat8E8M0FNU,
  kFloat4E2M1X2,  // two 4-bit values a byte, low nibble first; shapes count bytes
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kBool,
  kComplex64,
  kComplex128,
  kComplex32,
};
inline constexpr int kDTypeCount = 22;

enum class DTypeKind : uint8_t { kFloat, kUnsigned, kSigned, kBool, kComplex };

size_t DTypeSize(DType dtype);  // bytes an element
DTypeKind DTypeKindOf(DType dtype);
// Whether the dtype is a float format whose every number a float32 can hold.
bool IsNarrowFloat(DType dtype);
// The same for a name of DTypeTorchName or DTypeShortName; false for any other text.
bool IsNarrowFloat(std::string_view name);
std::string_view DTypeTorchName(DType dtype);  // "torch.float32"
std::string_view DTypeShortName(DType dtype);  // "float32": PyTorch's name without its module
// With or without the "torch." prefix; unknown names are nullopt.
std::optional<DType> DTypeFromTorchName(std::string_view name);

}  // namespace msprobe
