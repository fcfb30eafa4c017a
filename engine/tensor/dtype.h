// Element types: every dtype a PyTorch CPU tensor can have.
//
//   DType d = *DTypeFromTorchName("torch.bfloat16");
//   DTypeSize(d);                 // 2, bytes an element
//   DTypeTorchName(d);            // "torch.bfloat16"
//   DTypeEpsilon(d);              // 2^-7, the distance from 1 to the next number
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
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

// 2^exponent, from -1074 to 1023.
constexpr double PowerOfTwo(int exponent) {
  return std::bit_cast<double>(exponent < -1022 ? uint64_t{1} << (exponent + 1074)
                                                : static_cast<uint64_t>(exponent + 1023) << 52);
}

struct FloatFormat {
  int mantissa = 0;      // bits after the point: 23 of float32
  int min_exponent = 0;  // of the smallest normal number: -126 of float32
  double largest = 0;    // finite number

  constexpr double epsilon() const { return PowerOfTwo(-mantissa); }  // from 1 to the next number
  constexpr double roundoff() const { return epsilon() / 2; }  // largest relative error of rounding
  constexpr double smallest_normal() const { return PowerOfTwo(min_exponent); }
  constexpr double smallest() const { return PowerOfTwo(min_exponent - mantissa); }  // positive
};

struct DTypeFacts {
  std::string_view torch_name;  // "torch.float32"
  size_t size;                  // bytes an element
  DTypeKind kind;
  FloatFormat format = {};  // of floats, and of the two parts of complex numbers
};

namespace dtype_table {

inline constexpr FloatFormat kDouble{52, -1022, std::numeric_limits<double>::max()},
    kSingle{23, -126, std::numeric_limits<float>::max()}, kHalf{10, -14, 65504};

// In the order of the enum.
inline constexpr std::array<DTypeFacts, kDTypeCount> kFacts = {{
    {"torch.float64", 8, DTypeKind::kFloat, kDouble},
    {"torch.float32", 4, DTypeKind::kFloat, kSingle},
    {"torch.float16", 2, DTypeKind::kFloat, kHalf},
    {"torch.bfloat16", 2, DTypeKind::kFloat, {7, -126, 0x1.fep127}},
    {"torch.float8_e4m3fn", 1, DTypeKind::kFloat, {3, -6, 448}},
    {"torch.float8_e5m2", 1, DTypeKind::kFloat, {2, -14, 57344}},
    {"torch.float8_e4m3fnuz", 1, DTypeKind::kFloat, {3, -7, 240}},
    {"torch.float8_e5m2fnuz", 1, DTypeKind::kFloat, {2, -15, 57344}},
    {"torch.float8_e8m0fnu", 1, DTypeKind::kFloat, {0, -127, 0x1p127}},
    {"torch.float4_e2m1fn_x2", 1, DTypeKind::kFloat, {1, 0, 6}},
    {"torch.uint8", 1, DTypeKind::kUnsigned},
    {"torch.uint16", 2, DTypeKind::kUnsigned},
    {"torch.uint32", 4, DTypeKind::kUnsigned},
    {"torch.uint64", 8, DTypeKind::kUnsigned},
    {"torch.int8", 1, DTypeKind::kSigned},
    {"torch.int16", 2, DTypeKind::kSigned},
    {"torch.int32", 4, DTypeKind::kSigned},
    {"torch.int64", 8, DTypeKind::kSigned},
    {"torch.bool", 1, DTypeKind::kBool},
    {"torch.complex64", 8, DTypeKind::kComplex, kSingle},
    {"torch.complex128", 16, DTypeKind::kComplex, kDouble},
    {"torch.complex32", 4, DTypeKind::kComplex, kHalf},
}};

}  // namespace dtype_table

constexpr const DTypeFacts& FactsOf(DType dtype) {
  return dtype_table::kFacts[static_cast<size_t>(dtype)];
}
constexpr size_t DTypeSize(DType dtype) { return FactsOf(dtype).size; }  // bytes an element
constexpr DTypeKind DTypeKindOf(DType dtype) { return FactsOf(dtype).kind; }
constexpr bool IsFloatOrComplex(DType dtype) {
  return DTypeKindOf(dtype) == DTypeKind::kFloat || DTypeKindOf(dtype) == DTypeKind::kComplex;
}
// Of a float, or of a part of a complex number; 0 of all others, which are exact.
constexpr double DTypeEpsilon(DType dtype) {
  return IsFloatOrComplex(dtype) ? FactsOf(dtype).format.epsilon() : 0;
}
// Whether the dtype is a float format whose every number a float32 can hold.
constexpr bool IsNarrowFloat(DType dtype) {
  return DTypeKindOf(dtype) == DTypeKind::kFloat && dtype != DType::kFloat64;
}
// The same for a name of DTypeTorchName or DTypeShortName; false for any other text.
bool IsNarrowFloat(std::string_view name);
constexpr std::string_view DTypeTorchName(DType dtype) { return FactsOf(dtype).torch_name; }
// "float32": PyTorch's name without its module.
constexpr std::string_view DTypeShortName(DType dtype) {
  return DTypeTorchName(dtype).substr(std::string_view("torch.").size());
}
// With or without the "torch." prefix; unknown names are nullopt.
std::optional<DType> DTypeFromTorchName(std::string_view name);

}  // namespace msprobe
