// The statistics of floats on each SIMD target: what the passes of stats.cc and sketch.cc share.
#if defined(ENGINE_KERNELS_STATS_ACCUMULATOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENGINE_KERNELS_STATS_ACCUMULATOR_INL_H_
#undef ENGINE_KERNELS_STATS_ACCUMULATOR_INL_H_
#else
#define ENGINE_KERNELS_STATS_ACCUMULATOR_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/kernels/decode-inl.h"
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/stats_node.h"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {

// Elements that a pass takes at a time: whole lanes and whole stripes of the fingerprint.
template <class Loader>
constexpr int64_t StatsStep() {
  return std::max<int64_t>(kLanes, kStripeBytes / Loader::kBytes);
}

// Sums and extrema over the lanes, fed with floats.
struct FloatAccumulator {
  static constexpr size_t kElements = kLanes;
  DoubleVec sum[kDoubleVecs], squares[kDoubleVecs];
  FloatVec max[kFloatVecs], min[kFloatVecs];
  IntVec zero[kFloatVecs];

  HWY_INLINE FloatAccumulator() {
    for (size_t k = 0; k < kDoubleVecs; ++k) sum[k] = squares[k] = hn::Zero(DoubleTag());
    for (size_t k = 0; k < kFloatVecs; ++k) {
      max[k] = hn::Set(FloatTag(), -std::numeric_limits<float>::infinity());
      min[k] = hn::Set(FloatTag(), std::numeric_limits<float>::infinity());
      zero[k] = hn::Zero(IntTag());
    }
  }

  // Adds the kLanes elements at `p`. kMasked: only the first `count` belong to the tensor, the
  // others are zeros. Zeros do not change sums; the mask keeps them out of max, min and the count
  // of zeros. `also(k, elements)` is called with the elements, vector by vector.
  template <class Loader, bool kMasked, class Also>
  HWY_INLINE void Add(const uint8_t* p, size_t count, const Also& also) {
    const IntTag di;
    for (size_t k = 0; k < kFloatVecs; ++k, p += kFloatsPerVec * Loader::kBytes) {
      const FloatVec v = Loader::Load(p);
      auto is_zero = hn::Eq(v, hn::Zero(FloatTag()));
      if constexpr (kMasked) {
        const size_t before = k * kFloatsPerVec;
        const auto real = hn::FirstN(FloatTag(), count > before ? count - before : 0);
        max[k] = hn::IfThenElse(real, hn::Max(max[k], v), max[k]);
        min[k] = hn::IfThenElse(real, hn::Min(min[k], v), min[k]);
        is_zero = hn::And(is_zero, real);
      } else {
        max[k] = hn::Max(max[k], v);
        min[k] = hn::Min(min[k], v);
      }
      zero[k] = hn::Sub(zero[k], hn::VecFromMask(di, hn::RebindMask(di, is_zero)));
      DoubleVec low, high;
      Loader::Promote(p, v, low, high);
      sum[2 * k] = hn::Add(sum[2 * k], low);
      sum[2 * k + 1] = hn::Add(sum[2 * k + 1], high);
      // The square of a float is exact in double: fused or not, the same bits.
      squares[2 * k] = hn::MulAdd(low, low, squares[2 * k]);
      squares[2 * k + 1] = hn::MulAdd(high, high, squares[2 * k + 1]);
      also(k, v);
    }
  }
  template <class Loader, bool kMasked>
  HWY_INLINE void Add(const uint8_t* p, size_t count) {
    Add<Loader, kMasked>(p, count, [](size_t, FloatVec) {});
  }

  HWY_INLINE void Finish(StatsNode* node) {
    node->sum = AddLanes(sum);
    node->sum_squares = AddLanes(squares);
    node->max = hn::GetLane(hn::MaxOfLanes(FloatTag(), MaxOf(max)));
    node->min = hn::GetLane(hn::MinOfLanes(FloatTag(), MinOf(min)));
    IntVec zeros = zero[0];
    for (size_t k = 1; k < kFloatVecs; ++k) zeros = hn::Add(zeros, zero[k]);
    node->zero = hn::GetLane(hn::SumOfLanes(IntTag(), zeros));
  }
};

template <typename T>
HWY_INLINE void CountSpecials(const T* v, int64_t n, StatsNode* node) {
  int64_t nan = 0, pos = 0, neg = 0;
  constexpr T kInf = std::numeric_limits<T>::infinity();
  for (int64_t i = 0; i < n; ++i) {
    nan += std::isnan(v[i]);
    pos += v[i] == kInf;
    neg += v[i] == -kInf;
  }
  node->nan = nan;
  node->pos_inf = pos;
  node->neg_inf = neg;
}

// Whether a value may be NaN or infinite: then the sum of squares is not finite. The sum of large
// doubles may overflow as well; then the counts below stay 0.
HWY_INLINE bool MayHoldSpecials(const StatsNode& node) {
  return !(node.sum_squares < std::numeric_limits<double>::infinity());
}

// Counts NaN and infinities. The chunk is in the cache, so that reading it again costs no memory
// traffic; and only chunks with a NaN or an infinity are read again.
inline HWY_NOINLINE HWY_MAYBE_UNUSED void RecountFloats(DType dtype, const uint8_t* p, int64_t n,
                                                        StatsNode* node) {
  alignas(64) float values[2 * kChunkElements];
  DecodeFloats(dtype, p, n, values);
  CountSpecials(values, n * ValuesPerElement(dtype), node);
}
inline HWY_NOINLINE HWY_MAYBE_UNUSED void RecountDoubles(const uint8_t* p, int64_t n,
                                                         StatsNode* node) {
  alignas(64) double values[kChunkElements];
  std::memcpy(values, p, static_cast<size_t>(n) * sizeof(double));
  CountSpecials(values, n, node);
}

}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET != HWY_SCALAR
#endif  // include guard
