#include "engine/kernels/byte_checksums.h"

#include <libdeflate.h>

#include <cstring>

// The target with carry-less multiplication of 512 bits: 3.4 times the rate of libdeflate 1.14,
// whose vectors have 128. Only here, since no other kernel is faster on it.
#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/byte_checksums.cc"
#include <hwy/foreach_target.h>  // compiles this file once for each target
#include <hwy/highway.h>

#ifndef ENGINE_KERNELS_BYTE_CHECKSUMS_CC_ONCE_
#define ENGINE_KERNELS_BYTE_CHECKSUMS_CC_ONCE_
namespace msprobe::kernels {
namespace {

// A polynomial over GF(2) below x^32: the coefficient of x^0 is the top bit.
constexpr uint32_t kPolynomial = 0xedb88320;
constexpr uint32_t kOne = 0x80000000;

constexpr uint32_t TimesX(uint32_t p) { return p >> 1 ^ (p & 1 ? kPolynomial : 0); }

constexpr uint32_t Times(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1, b = TimesX(b)) {
    if (a & bit) product ^= b;
  }
  return product;
}

// x^n.
constexpr uint32_t PowerOfX(uint64_t n) {
  uint32_t power = kOne;
  for (uint32_t square = TimesX(kOne); n != 0; n >>= 1, square = Times(square, square)) {
    if (n & 1) power = Times(power, square);
  }
  return power;
}

// The factors for the two halves of each 16 bytes of a vector that move them `bytes` further on in
// the message. A product of reflected polynomials comes out one bit too low, hence the shift.
struct Factors {
  alignas(64) uint64_t word[8];
  explicit constexpr Factors(uint64_t bytes) : word() {
    for (int i = 0; i < 8; i += 2) {
      word[i] = uint64_t{PowerOfX(8 * bytes + 32)} << 1;
      word[i + 1] = uint64_t{PowerOfX(8 * bytes - 32)} << 1;
    }
  }
};

}  // namespace
}  // namespace msprobe::kernels
#endif  // ENGINE_KERNELS_BYTE_CHECKSUMS_CC_ONCE_

HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3_DL

using Tag = hn::FixedTag<uint64_t, 8>;
using Vec = hn::Vec<Tag>;
constexpr size_t kVecBytes = 64;
constexpr size_t kVecs = 4;  // enough to hide the latency of a multiplication
constexpr size_t kStepBytes = kVecs * kVecBytes;
constexpr size_t kWorthwhile = 4 * kStepBytes;  // bytes; for fewer, libdeflate is as fast

HWY_INLINE Vec LoadWords(const uint8_t* p) {
  return hn::LoadU(Tag(), reinterpret_cast<const uint64_t*>(p));
}

// Moves `v` by the distance that the factors stand for, and adds it to the vector there.
HWY_INLINE Vec Move(Vec v, Vec factors, Vec onto) {
  return hn::Xor(hn::Xor(hn::CLMulLower(v, factors), hn::CLMulUpper(v, factors)), onto);
}

// Vector k adds up bytes 64 k to 64 k + 63 of every step of 256 bytes: it is moved to its place in
// the next step and the bytes there are added. After the last whole step the four vectors are moved
// together into the last one, then come single vectors; libdeflate does the rest. Example: 1100
// bytes are 4 steps (1024 bytes), 1 vector (64) and 12 bytes.
uint32_t Crc32OfBytes(uint32_t crc, const uint8_t* p, size_t size) {
  if (size < kWorthwhile) return libdeflate_crc32(crc, p, size);
  constexpr Factors kStep(kStepBytes), kNext(kVecBytes);
  const Vec step = hn::Load(Tag(), kStep.word), next = hn::Load(Tag(), kNext.word);
  Vec sum[kVecs];
  for (size_t k = 0; k < kVecs; ++k) sum[k] = LoadWords(p + k * kVecBytes);
  alignas(64) const uint64_t before[8] = {static_cast<uint32_t>(~crc)};
  sum[0] = hn::Xor(sum[0], hn::Load(Tag(), before));
  for (p += kStepBytes, size -= kStepBytes; size >= kStepBytes; p += kStepBytes, size -= kStepBytes)
    for (size_t k = 0; k < kVecs; ++k) sum[k] = Move(sum[k], step, LoadWords(p + k * kVecBytes));
  for (size_t k = 1; k < kVecs; ++k) sum[k] = Move(sum[k - 1], next, sum[k]);
  Vec last = sum[kVecs - 1];
  for (; size >= kVecBytes; p += kVecBytes, size -= kVecBytes)
    last = Move(last, next, LoadWords(p));
  // The CRC of `last` and the rest is that of all bytes. `crc` is in it since the first vector;
  // libdeflate inverts its start value, so ~0u makes it begin with 0.
  alignas(64) uint64_t words[8];
  hn::Store(last, Tag(), words);
  return libdeflate_crc32(libdeflate_crc32(~0u, words, sizeof(words)), p, size);
}

#else

uint32_t Crc32OfBytes(uint32_t crc, const uint8_t* p, size_t size) {
  return libdeflate_crc32(crc, p, size);
}

#endif

uint64_t XorOfBytes(const uint8_t* p, size_t size) {
  using WordTag = hn::CappedTag<uint64_t, 8>;
  constexpr size_t kLanes = hn::MaxLanes(WordTag());
  constexpr size_t kSums = 8, kBytes = kSums * kLanes * 8;
  const WordTag d;
  hn::Vec<WordTag> sum[kSums];
  for (auto& v : sum) v = hn::Zero(d);
  const auto add = [&](const uint8_t* words) HWY_ATTR {
    for (size_t k = 0; k < kSums; ++k) {
      const auto v = hn::LoadU(d, reinterpret_cast<const uint64_t*>(words) + k * kLanes);
      sum[k] = hn::Xor(sum[k], v);
    }
  };
  for (; size >= kBytes; size -= kBytes, p += kBytes) add(p);
  if (size > 0) {
    alignas(64) uint8_t tail[kBytes] = {};
    std::memcpy(tail, p, size);
    add(tail);
  }
  alignas(64) uint64_t words[kSums * kLanes];
  for (size_t k = 0; k < kSums; ++k) hn::Store(sum[k], d, words + k * kLanes);
  uint64_t result = 0;
  for (const uint64_t word : words) result ^= word;
  return result;
}

}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msprobe::kernels {
namespace {
HWY_EXPORT(Crc32OfBytes);
HWY_EXPORT(XorOfBytes);
}  // namespace

uint32_t UpdateCrc32(uint32_t crc, const uint8_t* p, size_t size) {
  return HWY_DYNAMIC_DISPATCH(Crc32OfBytes)(crc, p, size);
}

uint64_t XorWords(const uint8_t* p, size_t size) {
  return HWY_DYNAMIC_DISPATCH(XorOfBytes)(p, size);
}

uint32_t Crc32Shift(uint64_t bytes) { return PowerOfX(8 * bytes); }

uint32_t CombineCrc32(uint32_t first, uint32_t second, uint32_t shift) {
  return Times(shift, first) ^ second;
}

}  // namespace msprobe::kernels
#endif  // HWY_ONCE
