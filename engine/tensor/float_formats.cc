#include "engine/tensor/float_formats.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace msprobe {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

template <typename T>
T Load(const void* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

// Of kWidth bits: sign | exponent | mantissa with the usual subnormals and no special value.
template <int kWidth, DType kDType>
float Decode(uint32_t bits) {
  constexpr FloatFormat kFormat = FactsOf(kDType).format;
  const uint32_t mantissa = bits & ((1u << kFormat.mantissa) - 1);
  const uint32_t exponent = (bits & ((1u << (kWidth - 1)) - 1)) >> kFormat.mantissa;
  constexpr int kLowest = kFormat.min_exponent - kFormat.mantissa;
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(mantissa), kLowest)
                              : std::ldexp(static_cast<float>(mantissa | 1u << kFormat.mantissa),
                                           static_cast<int>(exponent) - 1 + kLowest);
  return bits >> (kWidth - 1) & 1 ? -magnitude : magnitude;
}

}  // namespace

float HalfToFloat(uint16_t bits) {
  if ((bits & 0x7c00) == 0x7c00) {
    if (bits & 0x3ff) return kNan;
    return bits & 0x8000 ? -kInf : kInf;
  }
  return Decode<16, DType::kFloat16>(bits);
}

float BFloat16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

float Float8E4M3FNToFloat(uint8_t bits) {
  return (bits & 0x7f) == 0x7f ? kNan : Decode<8, DType::kFloat8E4M3FN>(bits);
}

float Float8E5M2ToFloat(uint8_t bits) {
  if ((bits & 0x7c) == 0x7c) {
    if (bits & 3) return kNan;
    return bits & 0x80 ? -kInf : kInf;
  }
  return Decode<8, DType::kFloat8E5M2>(bits);
}

float Float8E4M3FNUZToFloat(uint8_t bits) {
  return bits == 0x80 ? kNan : Decode<8, DType::kFloat8E4M3FNUZ>(bits);
}
float Float8E5M2FNUZToFloat(uint8_t bits) {
  return bits == 0x80 ? kNan : Decode<8, DType::kFloat8E5M2FNUZ>(bits);
}
float Float8E8M0ToFloat(uint8_t bits) { return bits == 0xff ? kNan : std::ldexp(1.0f, bits - 127); }
float Float4E2M1ToFloat(uint8_t nibble) { return Decode<4, DType::kFloat4E2M1X2>(nibble & 15u); }

uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // rounds to 65536 or beyond
  if (magnitude < 0x38800000) {                       // below 2^-14: a multiple of 2^-24
    const float scaled = std::fabs(value) * 0x1p24f;
    return sign | static_cast<uint16_t>(std::nearbyint(scaled));
  }
  const uint32_t rebased = magnitude - (112u << 23);
  return sign | static_cast<uint16_t>((rebased + 0xfff + (rebased >> 13 & 1)) >> 13);
}

uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

double ElementToDouble(DType dtype, const void* p) {
  switch (dtype) {
    case DType::kFloat64:
      return Load<double>(p);
    case DType::kFloat32:
      return Load<float>(p);
    case DType::kFloat16:
      return HalfToFloat(Load<uint16_t>(p));
    case DType::kBFloat16:
      return BFloat16ToFloat(Load<uint16_t>(p));
    case DType::kFloat8E4M3FN:
      return Float8E4M3FNToFloat(Load<uint8_t>(p));
    case DType::kFloat8E5M2:
      return Float8E5M2ToFloat(Load<uint8_t>(p));
    case DType::kFloat8E4M3FNUZ:
      return Float8E4M3FNUZToFloat(Load<uint8_t>(p));
    case DType::kFloat8E5M2FNUZ:
      return Float8E5M2FNUZToFloat(Load<uint8_t>(p));
    case DType::kFloat8E8M0FNU:
      return Float8E8M0ToFloat(Load<uint8_t>(p));
    case DType::kUInt8:
      return Load<uint8_t>(p);
    case DType::kUInt16:
      return Load<uint16_t>(p);
    case DType::kUInt32:
      return Load<uint32_t>(p);
    case DType::kUInt64:
      return static_cast<double>(Load<uint64_t>(p));
    case DType::kInt8:
      return Load<int8_t>(p);
    case DType::kInt16:
      return Load<int16_t>(p);
    case DType::kInt32:
      return Load<int32_t>(p);
    case DType::kInt64:
      return static_cast<double>(Load<int64_t>(p));
    case DType::kBool:
      return Load<uint8_t>(p) != 0;
    case DType::kFloat4E2M1X2:
    case DType::kComplex32:
    case DType::kComplex64:
    case DType::kComplex128:
      break;
  }
  return kNan;
}

std::complex<double> ElementToComplex(DType dtype, const void* p) {
  const char* bytes = static_cast<const char*>(p);
  switch (dtype) {
    case DType::kComplex32:
      return {HalfToFloat(Load<uint16_t>(bytes)), HalfToFloat(Load<uint16_t>(bytes + 2))};
    case DType::kComplex64:
      return {Load<float>(bytes), Load<float>(bytes + 4)};
    case DType::kComplex128:
      return {Load<double>(bytes), Load<double>(bytes + 8)};
    default:
      return ElementToDouble(dtype, p);
  }
}

}  // namespace msprobe
