// Converts elements of any dtype to float, double, modulus, or real and imaginary part, a chunk at
// a time, on each SIMD target. The loops are plain; the compiler vectorises them. Every conversion
// is exact or correctly rounded, and therefore the same on every target.
#if defined(ENGINE_KERNELS_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENGINE_KERNELS_DECODE_INL_H_
#undef ENGINE_KERNELS_DECODE_INL_H_
#else
#define ENGINE_KERNELS_DECODE_INL_H_
#endif

#include <cmath>
#include <cstring>

#include "engine/kernels/byte_tables.h"
#include "engine/kernels/dtype_traits.h"
#include "engine/kernels/lanes-inl.h"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE T LoadElement(const uint8_t* p, int64_t i) {
  T value;
  std::memcpy(&value, p + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename From, typename To>
HWY_INLINE void Convert(const uint8_t* p, int64_t n, To* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<To>(LoadElement<From>(p, i));
}

template <class Loader>
HWY_INLINE void LoadAll(const uint8_t* p, int64_t n, float* out) {
  constexpr int64_t kStep = static_cast<int64_t>(kFloatsPerVec);
  constexpr int64_t kBytes = static_cast<int64_t>(Loader::kBytes);
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) hn::StoreU(Loader::Load(p + i * kBytes), FloatTag(), out + i);
  if (i == n) return;
  uint8_t tail[kFloatsPerVec * Loader::kBytes] = {};
  float values[kFloatsPerVec];
  std::memcpy(tail, p + i * kBytes, static_cast<size_t>((n - i) * kBytes));
  hn::StoreU(Loader::Load(tail), FloatTag(), values);
  std::memcpy(out + i, values, static_cast<size_t>(n - i) * sizeof(float));
}

// `n` elements of a dtype with FitsFloat. kFloat4E2M1X2 gives 2 * n values.
inline HWY_NOINLINE HWY_MAYBE_UNUSED void DecodeFloats(DType dtype, const uint8_t* p, int64_t n,
                                                       float* out) {
  switch (dtype) {
    case DType::kFloat32:
      std::memcpy(out, p, static_cast<size_t>(n) * 4);
      return;
    case DType::kFloat16:
      LoadAll<LoadFloat16>(p, n, out);
      return;
    case DType::kBFloat16:
      LoadAll<LoadBFloat16>(p, n, out);
      return;
    case DType::kUInt8:
      Convert<uint8_t>(p, n, out);
      return;
    case DType::kInt8:
      Convert<int8_t>(p, n, out);
      return;
    case DType::kUInt16:
      Convert<uint16_t>(p, n, out);
      return;
    case DType::kInt16:
      Convert<int16_t>(p, n, out);
      return;
    case DType::kBool:
      for (int64_t i = 0; i < n; ++i) out[i] = p[i] != 0 ? 1.0f : 0.0f;
      return;
    case DType::kFloat4E2M1X2: {
      const float* table = NibbleTable();
      for (int64_t i = 0; i < n; ++i) {
        out[2 * i] = table[p[i] & 15];
        out[2 * i + 1] = table[p[i] >> 4];
      }
      return;
    }
    default: {
      const float* table = ByteTable(dtype);
      for (int64_t i = 0; i < n; ++i) out[i] = table[p[i]];
    }
  }
}

// `n` elements of any dtype that is not complex; 64-bit integers are rounded. kFloat4E2M1X2 gives
// 2 * n values.
inline HWY_NOINLINE HWY_MAYBE_UNUSED void DecodeDoubles(DType dtype, const uint8_t* p, int64_t n,
                                                        double* out) {
  switch (dtype) {
    case DType::kFloat64:
      std::memcpy(out, p, static_cast<size_t>(n) * 8);
      return;
    case DType::kFloat32:
      Convert<float>(p, n, out);
      return;
    case DType::kUInt32:
      Convert<uint32_t>(p, n, out);
      return;
    case DType::kInt32:
      Convert<int32_t>(p, n, out);
      return;
    case DType::kUInt64:
      Convert<uint64_t>(p, n, out);
      return;
    case DType::kInt64:
      Convert<int64_t>(p, n, out);
      return;
    default: {
      constexpr int64_t kBlock = 256;
      float block[2 * kBlock];
      const int64_t size = static_cast<int64_t>(DTypeSize(dtype)), values = ValuesPerElement(dtype);
      for (int64_t i = 0; i < n; i += kBlock) {
        const int64_t m = n - i < kBlock ? n - i : kBlock;
        DecodeFloats(dtype, p + i * size, m, block);
        for (int64_t j = 0; j < m * values; ++j) out[i * values + j] = block[j];
      }
    }
  }
}

// Real and imaginary parts; a real dtype has imaginary part 0.
inline HWY_NOINLINE HWY_MAYBE_UNUSED void DecodeComplex(DType dtype, const uint8_t* p, int64_t n,
                                                        double* re, double* im) {
  switch (dtype) {
    case DType::kComplex128:
      for (int64_t i = 0; i < n; ++i) {
        re[i] = LoadElement<double>(p, 2 * i);
        im[i] = LoadElement<double>(p, 2 * i + 1);
      }
      return;
    case DType::kComplex64:
      for (int64_t i = 0; i < n; ++i) {
        re[i] = LoadElement<float>(p, 2 * i);
        im[i] = LoadElement<float>(p, 2 * i + 1);
      }
      return;
    case DType::kComplex32: {
      constexpr int64_t kBlock = 128;
      float block[2 * kBlock];
      for (int64_t i = 0; i < n; i += kBlock) {
        const int64_t m = n - i < kBlock ? n - i : kBlock;
        LoadAll<LoadFloat16>(p + i * 4, 2 * m, block);
        for (int64_t j = 0; j < m; ++j) {
          re[i + j] = block[2 * j];
          im[i + j] = block[2 * j + 1];
        }
      }
      return;
    }
    default:
      DecodeDoubles(dtype, p, n, re);
      for (int64_t i = 0; i < n * ValuesPerElement(dtype); ++i) im[i] = 0.0;
  }
}

// out[i] = |re[i] + i im[i]| as Modulus() defines it.
inline HWY_NOINLINE HWY_MAYBE_UNUSED void Moduli(const double* re, const double* im, int64_t n,
                                                 double* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = Modulus(re[i], im[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET != HWY_SCALAR
#endif  // include guard
