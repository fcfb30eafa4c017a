// Conversions of the small float formats, one element at a time: the readable definition that the
// kernels are tested against.
//
//   float one = HalfToFloat(0x3c00);                        // 1.0f
//   double value = ElementToDouble(DType::kBFloat16, p);    // of the element at p
// Sources: IEEE 754-2019 (binary16); OCP 8-bit floating point specification 1.0 (E4M3FN, E5M2); the
// *FNUZ forms as in ONNX (no infinity, no negative zero, NaN is 0x80, bias one higher); OCP
// Microscaling formats 1.0 (E8M0, E2M1).
#pragma once

#include <complex>
#include <cstdint>

#include "engine/tensor/dtype.h"

namespace msprobe {

float HalfToFloat(uint16_t bits);
float BFloat16ToFloat(uint16_t bits);
float Float8E4M3FNToFloat(uint8_t bits);
float Float8E5M2ToFloat(uint8_t bits);
float Float8E4M3FNUZToFloat(uint8_t bits);
float Float8E5M2FNUZToFloat(uint8_t bits);
float Float8E8M0ToFloat(uint8_t bits);
float Float4E2M1ToFloat(uint8_t nibble);  // the low four bits

uint16_t FloatToHalf(float value);      // round to nearest even
uint16_t FloatToBFloat16(float value);  // round to nearest even; NaN stays NaN

// The value of the element at `p`, for every dtype with one real value in each element. int64 and
// uint64 above 2^53 are rounded. Not for complex dtypes and kFloat4E2M1X2.
double ElementToDouble(DType dtype, const void* p);
// Real and imaginary part; the imaginary part of a real dtype is 0. Not for kFloat4E2M1X2.
std::complex<double> ElementToComplex(DType dtype, const void* p);

}  // namespace msprobe
