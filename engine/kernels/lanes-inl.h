// What kernels share on each SIMD target: the virtual lanes, the loaders that bring elements into
// them, and the fingerprint.
//
// Element i of a chunk belongs to virtual lane i % kLanes, a double, on every target; a target with
// vectors of N doubles keeps kLanes / N of them. Lanes are added up in one fixed tree (AddLanes).
// That, and no fused multiply-add unless the product is exact, makes sums the same bits everywhere.
#if defined(ENGINE_KERNELS_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENGINE_KERNELS_LANES_INL_H_
#undef ENGINE_KERNELS_LANES_INL_H_
#else
#define ENGINE_KERNELS_LANES_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "engine/kernels/fingerprint.h"

// A CPU without vectors (older than SSSE3) runs the scalar twins, and needs nothing of this file.
#if HWY_TARGET != HWY_SCALAR

HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors are capped at 512 bits; their sizes are constants on every target we build for (x86,
// NEON).
using FloatTag = hn::CappedTag<float, 16>;
using DoubleTag = hn::CappedTag<double, 8>;
using IntTag = hn::RebindToSigned<FloatTag>;
using LongTag = hn::RebindToSigned<DoubleTag>;
using HalfFloatTag = hn::Rebind<float, DoubleTag>;
using FloatVec = hn::Vec<FloatTag>;
using DoubleVec = hn::Vec<DoubleTag>;
using IntVec = hn::Vec<IntTag>;
using LongVec = hn::Vec<LongTag>;

inline constexpr size_t kLanes = 16;

// Prefetches memory that will be read soon: far ahead into the L2 cache, and nearer into the L1
// cache. The hardware alone does not look far enough ahead: 64M floats took 38 ms without a
// prefetch, 28 ms with one 2048 bytes ahead into L1, 24 ms with one 8192 bytes ahead into L2, 21 ms
// with both; memcpy took 24 ms (Xeon of 2.6 GHz, 4 KiB pages).
inline constexpr size_t kPrefetchFar = 8192, kPrefetchNear = 1024;  // bytes
HWY_INLINE void PrefetchAhead(const uint8_t* p) {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  __builtin_prefetch(p + kPrefetchFar, /*rw=*/0, /*locality=*/2);
#endif
  hwy::Prefetch(p + kPrefetchNear);
}

inline constexpr size_t kFloatsPerVec = hn::MaxLanes(FloatTag());
inline constexpr size_t kDoublesPerVec = hn::MaxLanes(DoubleTag());
inline constexpr size_t kFloatVecs =
    kLanes / kFloatsPerVec;  // vectors of float that hold the lanes
inline constexpr size_t kDoubleVecs = kLanes / kDoublesPerVec;  // vectors of double that hold them
static_assert(kFloatsPerVec == 2 * kDoublesPerVec);

// Sum of the lanes: lane j + lane j + 8, then 4, 2, 1. Destroys `lanes`.
HWY_INLINE double AddLanes(DoubleVec (&lanes)[kDoubleVecs]) {
  for (size_t n = kDoubleVecs / 2; n > 0; n /= 2) {
    for (size_t k = 0; k < n; ++k) lanes[k] = hn::Add(lanes[k], lanes[k + n]);
  }
  alignas(64) double last[kDoublesPerVec];
  hn::Store(lanes[0], DoubleTag(), last);
  for (size_t n = kDoublesPerVec / 2; n > 0; n /= 2) {
    for (size_t k = 0; k < n; ++k) last[k] += last[k + n];
  }
  return last[0];
}

template <class V, size_t N>
HWY_INLINE V MaxOf(const V (&v)[N]) {
  V m = v[0];
  for (size_t k = 1; k < N; ++k) m = hn::Max(m, v[k]);
  return m;
}
template <class V, size_t N>
HWY_INLINE V MinOf(const V (&v)[N]) {
  V m = v[0];
  for (size_t k = 1; k < N; ++k) m = hn::Min(m, v[k]);
  return m;
}

// Half precision in the low 16 bits of each lane to float, exactly; NaN stays NaN.
HWY_INLINE FloatVec HalfBitsToFloat(IntVec bits) {
  const IntTag di;
  const FloatTag df;
  const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(di, 0x7fff)));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(di, 0x8000)));
  // 2^112 moves the exponent's bias from 15 to 127, subnormals included; exponent 31 becomes 255.
  const auto number = hn::BitCast(di, hn::Mul(hn::BitCast(df, magnitude), hn::Set(df, 0x1p112f)));
  const auto special = hn::Gt(magnitude, hn::Set(di, (0x7c00 << 13) - 1));
  const auto value = hn::IfThenElse(special, hn::Or(magnitude, hn::Set(di, 0x7f800000)), number);
  return hn::BitCast(df, hn::Or(value, sign));
}

// A loader brings kFloatsPerVec consecutive elements at `p` to float, exactly.
struct LoadFloat32 {
  static constexpr size_t kBytes = 4;
  static HWY_INLINE FloatVec Load(const uint8_t* p) {
    return hn::LoadU(FloatTag(), reinterpret_cast<const float*>(p));
  }
  // The same elements as doubles, read from memory once more: cheaper than splitting a vector.
  static HWY_INLINE void Promote(const uint8_t* p, FloatVec, DoubleVec& low, DoubleVec& high) {
    const float* f = reinterpret_cast<const float*>(p);
    low = hn::PromoteTo(DoubleTag(), hn::LoadU(HalfFloatTag(), f));
    high = hn::PromoteTo(DoubleTag(), hn::LoadU(HalfFloatTag(), f + kDoublesPerVec));
  }
};

struct LoadBits16 {
  static constexpr size_t kBytes = 2;
  static HWY_INLINE IntVec Bits(const uint8_t* p) {
    const hn::Rebind<uint16_t, FloatTag> du16;
    return hn::PromoteTo(IntTag(), hn::LoadU(du16, reinterpret_cast<const uint16_t*>(p)));
  }
  static HWY_INLINE void Promote(const uint8_t*, FloatVec v, DoubleVec& low, DoubleVec& high) {
    low = hn::PromoteTo(DoubleTag(), hn::LowerHalf(HalfFloatTag(), v));
    high = hn::PromoteTo(DoubleTag(), hn::UpperHalf(HalfFloatTag(), v));
  }
};

struct LoadBFloat16 : LoadBits16 {
  static HWY_INLINE FloatVec Load(const uint8_t* p) {
    return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(Bits(p)));
  }
};

struct LoadFloat16 : LoadBits16 {
  static HWY_INLINE FloatVec Load(const uint8_t* p) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
    const hn::Rebind<hwy::float16_t, FloatTag> df16;
    return hn::PromoteTo(FloatTag(), hn::LoadU(df16, reinterpret_cast<const hwy::float16_t*>(p)));
#else
    return HalfBitsToFloat(Bits(p));  // Highway's emulation is wrong for infinity and NaN
#endif
  }
};

// The eight sums of fingerprint.h. kOn false: no code.
template <bool kOn>
class Hasher {
 public:
  HWY_INLINE Hasher() {
    for (size_t k = 0; k < kVecs; ++k) sum_[k] = hn::Zero(Tag());
  }
  HWY_INLINE void Stripe(const uint8_t* p) {
    if (HWY_UNLIKELY(stripe_ == kBlockStripes)) Scramble();
    for (size_t k = 0; k < kVecs; ++k) {
      const auto word = hn::LoadU(Tag(), reinterpret_cast<const uint64_t*>(p) + k * kWords);
      const auto key = hn::Load(Tag(), kHashKeys.word[stripe_] + k * kWords);
      const auto keyed = hn::Add(hn::BitCast(HalfTag(), word), hn::BitCast(HalfTag(), key));
      const auto high = hn::ShiftRight<32>(hn::BitCast(Tag(), keyed));
      const auto product = hn::MulEven(keyed, hn::BitCast(HalfTag(), high));
      sum_[k] = hn::Add(sum_[k], hn::Add(product, hn::Shuffle01(word)));
    }
    ++stripe_;
  }
  HWY_INLINE uint64_t Finish(uint64_t chunk, uint64_t bytes) const {
    alignas(64) uint64_t sums[8];
    StoreSums(sums);
    return FinishChunk(sums, chunk, bytes);
  }
  HWY_INLINE void StoreSums(uint64_t* sums) const {  // eight words, aligned to 64 bytes
    for (size_t k = 0; k < kVecs; ++k) hn::Store(sum_[k], Tag(), sums + k * kWords);
  }

 private:
  using Tag = hn::CappedTag<uint64_t, 8>;
  using HalfTag = hn::Repartition<uint32_t, Tag>;
  static constexpr size_t kWords = hn::MaxLanes(Tag());
  static constexpr size_t kVecs = 8 / kWords;
  HWY_INLINE void Scramble() {
    const auto factor = hn::BitCast(HalfTag(), hn::Set(Tag(), kScrambleFactor));
    for (size_t k = 0; k < kVecs; ++k) {
      const auto x = hn::Xor(sum_[k], hn::ShiftRight<37>(sum_[k]));
      const auto low = hn::MulEven(hn::BitCast(HalfTag(), x), factor);
      const auto high = hn::MulEven(hn::BitCast(HalfTag(), hn::ShiftRight<32>(x)), factor);
      sum_[k] = hn::Add(low, hn::ShiftLeft<32>(high));
    }
    stripe_ = 0;
  }

  hn::Vec<Tag> sum_[kVecs];
  size_t stripe_ = 0;  // in the block
};

template <>
class Hasher<false> {
 public:
  HWY_INLINE void Stripe(const uint8_t*) {}
  HWY_INLINE uint64_t Finish(uint64_t, uint64_t) const { return 0; }
};

}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET != HWY_SCALAR
#endif  // include guard
