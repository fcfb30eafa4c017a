// Every bit pattern of every small format, against values computed in double from the formats'
// published parameters.
#include "engine/tensor/float_formats.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace msprobe {
namespace {

const double kNaN = std::numeric_limits<double>::quiet_NaN();
const double kInf = std::numeric_limits<double>::infinity();

double TwoTo(int exponent) {
  double value = 1;
  for (; exponent > 0; --exponent) value *= 2;
  for (; exponent < 0; ++exponent) value /= 2;
  return value;
}

enum class Special { kNone, kIeee, kOnlyNaNAllOnes, kNaNIsNegativeZero };

struct Format {
  const char* name;
  int exponent_bits, mantissa_bits, bias;
  Special special;
};

// The value by definition: (-1)^s 2^(e - bias) (1 + m/2^M), and 2^(1 - bias) (m/2^M) for e = 0;
// the mantissa is summed bit by bit.
double Oracle(const Format& f, unsigned bits) {
  const unsigned sign = bits >> (f.exponent_bits + f.mantissa_bits) & 1;
  const unsigned exponent = bits >> f.mantissa_bits & ((1u << f.exponent_bits) - 1);
  const unsigned mantissa = bits & ((1u << f.mantissa_bits) - 1);
  const bool top_exponent = exponent == (1u << f.exponent_bits) - 1;
  const bool top_mantissa = mantissa == (1u << f.mantissa_bits) - 1;
  if (f.special == Special::kIeee && top_exponent)
    return mantissa != 0 ? kNaN : sign ? -kInf : kInf;
  if (f.special == Special::kOnlyNaNAllOnes && top_exponent && top_mantissa) return kNaN;
  if (f.special == Special::kNaNIsNegativeZero && sign && exponent == 0 && mantissa == 0)
    return kNaN;
  double fraction = exponent == 0 ? 0 : 1;
  for (int i = 0; i < f.mantissa_bits; ++i) {
    if (mantissa >> i & 1) fraction += TwoTo(i - f.mantissa_bits);
  }
  const double value = fraction * TwoTo(static_cast<int>(exponent == 0 ? 1 : exponent) - f.bias);
  return sign ? -value : value;
}

// The same value; zeros must also have the same sign.
void ExpectSame(double have, double want, unsigned bits, const char* name) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(have)) << name << " 0x" << std::hex << bits << " is " << have;
    return;
  }
  EXPECT_EQ(have, want) << name << " 0x" << std::hex << bits;
  EXPECT_EQ(std::signbit(have), std::signbit(want)) << name << " 0x" << std::hex << bits;
}

constexpr Format kHalf = {"float16", 5, 10, 15, Special::kIeee};
constexpr Format kBFloat = {"bfloat16", 8, 7, 127, Special::kIeee};
constexpr Format kE4M3FN = {"float8_e4m3fn", 4, 3, 7, Special::kOnlyNaNAllOnes};
constexpr Format kE5M2 = {"float8_e5m2", 5, 2, 15, Special::kIeee};
constexpr Format kE4M3FNUZ = {"float8_e4m3fnuz", 4, 3, 8, Special::kNaNIsNegativeZero};
constexpr Format kE5M2FNUZ = {"float8_e5m2fnuz", 5, 2, 16, Special::kNaNIsNegativeZero};
constexpr Format kE2M1 = {"float4_e2m1", 2, 1, 1, Special::kNone};

TEST(FloatFormats, EverySixteenBitPattern) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const uint16_t p = static_cast<uint16_t>(bits);
    ExpectSame(HalfToFloat(p), Oracle(kHalf, bits), bits, kHalf.name);
    ExpectSame(ElementToDouble(DType::kFloat16, &p), Oracle(kHalf, bits), bits, kHalf.name);
    ExpectSame(BFloat16ToFloat(p), Oracle(kBFloat, bits), bits, kBFloat.name);
    ExpectSame(ElementToDouble(DType::kBFloat16, &p), Oracle(kBFloat, bits), bits, kBFloat.name);
  }
}

TEST(FloatFormats, EveryEightBitPattern) {
  struct Decoder {
    Format format;
    float (*decode)(uint8_t);
    DType dtype;
  };
  const Decoder decoders[] = {
      {kE4M3FN, &Float8E4M3FNToFloat, DType::kFloat8E4M3FN},
      {kE5M2, &Float8E5M2ToFloat, DType::kFloat8E5M2},
      {kE4M3FNUZ, &Float8E4M3FNUZToFloat, DType::kFloat8E4M3FNUZ},
      {kE5M2FNUZ, &Float8E5M2FNUZToFloat, DType::kFloat8E5M2FNUZ},
  };
  for (const Decoder& d : decoders) {
    for (unsigned bits = 0; bits < 0x100; ++bits) {
      const uint8_t p = static_cast<uint8_t>(bits);
      ExpectSame(d.decode(p), Oracle(d.format, bits), bits, d.format.name);
      ExpectSame(ElementToDouble(d.dtype, &p), Oracle(d.format, bits), bits, d.format.name);
    }
  }
}

TEST(FloatFormats, EveryScale) {
  for (unsigned bits = 0; bits < 0x100; ++bits) {
    const uint8_t p = static_cast<uint8_t>(bits);
    const double want = bits == 0xff ? kNaN : TwoTo(static_cast<int>(bits) - 127);
    ExpectSame(Float8E8M0ToFloat(p), want, bits, "float8_e8m0fnu");
    ExpectSame(ElementToDouble(DType::kFloat8E8M0FNU, &p), want, bits, "float8_e8m0fnu");
  }
}

TEST(FloatFormats, EveryNibbleAndOnlyTheLowOne) {
  for (unsigned bits = 0; bits < 0x100; ++bits)
    ExpectSame(Float4E2M1ToFloat(static_cast<uint8_t>(bits)), Oracle(kE2M1, bits & 15), bits,
               kE2M1.name);
}

// Values from the tables of the specifications, to check the oracle itself.
TEST(FloatFormats, ValuesTheSpecificationsName) {
  EXPECT_EQ(HalfToFloat(0x3c00), 1.0f);
  EXPECT_EQ(HalfToFloat(0x7bff), 65504.0f);
  EXPECT_EQ(HalfToFloat(0x0400), 0x1p-14f);
  EXPECT_EQ(HalfToFloat(0x0001), 0x1p-24f);
  EXPECT_EQ(BFloat16ToFloat(0x3f80), 1.0f);
  EXPECT_EQ(BFloat16ToFloat(0x7f7f), 0x1.fep127f);
  EXPECT_EQ(Float8E4M3FNToFloat(0x7e), 448.0f);
  EXPECT_EQ(Float8E4M3FNToFloat(0x08), 0x1p-6f);
  EXPECT_EQ(Float8E4M3FNToFloat(0x01), 0x1p-9f);
  EXPECT_EQ(Float8E5M2ToFloat(0x7b), 57344.0f);
  EXPECT_EQ(Float8E5M2ToFloat(0x01), 0x1p-16f);
  EXPECT_EQ(Float8E4M3FNUZToFloat(0x7f), 240.0f);
  EXPECT_EQ(Float8E4M3FNUZToFloat(0x01), 0x1p-10f);
  EXPECT_EQ(Float8E5M2FNUZToFloat(0x7f), 57344.0f);
  EXPECT_EQ(Float8E5M2FNUZToFloat(0x01), 0x1p-17f);
  EXPECT_EQ(Float8E8M0ToFloat(0x7f), 1.0f);
  EXPECT_EQ(Float8E8M0ToFloat(0x00), 0x1p-127f);
  EXPECT_EQ(Float8E8M0ToFloat(0xfe), 0x1p127f);
  const float nibbles[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (uint8_t i = 0; i < 8; ++i) EXPECT_EQ(Float4E2M1ToFloat(i), nibbles[i]);
}

// Between neighbours a < b the rounded result changes only at the middle, so it is enough to test
// the middle and one float on either side of it.
TEST(FloatFormats, ToHalfAroundEveryMiddle) {
  for (uint16_t bits = 0; bits < 0x7c00; ++bits) {
    const double low = Oracle(kHalf, bits);
    const double high = bits == 0x7bff ? 65536.0 : Oracle(kHalf, bits + 1u);  // above it: infinity
    const float middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(middle, (low + high) / 2);  // every middle is exact in float32
    const uint16_t next = static_cast<uint16_t>(bits + 1);
    const uint16_t even = bits % 2 == 0 ? bits : next;
    EXPECT_EQ(FloatToHalf(static_cast<float>(low)), bits);
    EXPECT_EQ(FloatToHalf(std::nextafter(middle, 0.0f)), bits);
    EXPECT_EQ(FloatToHalf(middle), even) << middle;
    EXPECT_EQ(FloatToHalf(std::nextafter(middle, INFINITY)), next);
    EXPECT_EQ(FloatToHalf(-middle), even | 0x8000);
    EXPECT_EQ(FloatToHalf(-std::nextafter(middle, 0.0f)), bits | 0x8000);
  }
}

TEST(FloatFormats, ToHalfAtTheEnds) {
  EXPECT_EQ(FloatToHalf(INFINITY), 0x7c00);
  EXPECT_EQ(FloatToHalf(-INFINITY), 0xfc00);
  EXPECT_EQ(FloatToHalf(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(FloatToHalf(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(FloatToHalf(-0.0f), 0x8000);
  for (const uint32_t nan : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffc00000u})
    EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(std::bit_cast<float>(nan))))) << nan;
}

TEST(FloatFormats, ToBFloat16AroundEveryMiddle) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint32_t f = bits << 16;
    const uint16_t here = static_cast<uint16_t>(bits), next = static_cast<uint16_t>(bits + 1);
    const auto rounded = [](uint32_t p) { return FloatToBFloat16(std::bit_cast<float>(p)); };
    if (std::isnan(BFloat16ToFloat(here)) || std::isinf(BFloat16ToFloat(here))) continue;
    EXPECT_EQ(rounded(f), here);
    EXPECT_EQ(rounded(f + 1), here);
    EXPECT_EQ(rounded(f + 0x7fff), here);
    EXPECT_EQ(rounded(f + 0x8000), bits % 2 == 0 ? here : next);
    EXPECT_EQ(rounded(f + 0x8001), next);
    EXPECT_EQ(rounded(f + 0xffff), next);
  }
  EXPECT_EQ(FloatToBFloat16(INFINITY), 0x7f80);
  EXPECT_EQ(FloatToBFloat16(-INFINITY), 0xff80);
}

TEST(FloatFormats, ToBFloat16KeepsNaNWhereverItsBitsAre) {
  for (int bit = 0; bit < 23; ++bit) {
    for (const uint32_t sign : {0u, 0x80000000u}) {
      const float nan = std::bit_cast<float>(sign | 0x7f800000u | 1u << bit);
      EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(nan)))) << bit;
      EXPECT_EQ(FloatToBFloat16(nan) >> 15, sign >> 31);
    }
  }
}

template <typename T>
void ExpectElement(DType dtype, T value, double want) {
  char bytes[sizeof(T) + 1];
  std::memcpy(bytes + 1, &value, sizeof(T));  // tensors in files need not be aligned
  EXPECT_EQ(ElementToDouble(dtype, bytes + 1), want) << DTypeShortName(dtype);
  EXPECT_EQ(ElementToComplex(dtype, bytes + 1), std::complex<double>(want, 0));
}

TEST(Element, ValuesOfTheWideTypes) {
  ExpectElement<double>(DType::kFloat64, 0.1, 0.1);
  ExpectElement<float>(DType::kFloat32, 0.1f, static_cast<double>(0.1f));
  ExpectElement<uint8_t>(DType::kUInt8, 200, 200);
  ExpectElement<uint16_t>(DType::kUInt16, 60000, 60000);
  ExpectElement<uint32_t>(DType::kUInt32, 4000000000u, 4e9);
  ExpectElement<uint64_t>(DType::kUInt64, UINT64_MAX, 0x1p64);
  ExpectElement<int8_t>(DType::kInt8, -128, -128);
  ExpectElement<int16_t>(DType::kInt16, -32768, -32768);
  ExpectElement<int32_t>(DType::kInt32, INT32_MIN, -0x1p31);
  ExpectElement<int64_t>(DType::kInt64, INT64_MIN, -0x1p63);
  ExpectElement<int64_t>(DType::kInt64, (int64_t{1} << 53) + 1, 0x1p53);  // rounded to even
  ExpectElement<uint8_t>(DType::kBool, 0, 0);
  ExpectElement<uint8_t>(DType::kBool, 1, 1);
  ExpectElement<uint8_t>(DType::kBool, 0xfe, 1);  // any bit set means true
}

TEST(Element, BothPartsOfComplexTypes) {
  const uint16_t half[] = {0x3c00, 0xc000};
  EXPECT_EQ(ElementToComplex(DType::kComplex32, half), std::complex<double>(1, -2));
  const float single[] = {0.5f, -3};
  EXPECT_EQ(ElementToComplex(DType::kComplex64, single), std::complex<double>(0.5, -3));
  const double twice[] = {0.1, 1e300};
  EXPECT_EQ(ElementToComplex(DType::kComplex128, twice), std::complex<double>(0.1, 1e300));
}

}  // namespace
}  // namespace msprobe
