// The sums of the columns of rows of float32, float16 and bfloat16, in float: one fused
// multiply-add for real and imaginary part each, in sixteen lanes. The lanes of whole rows are
// added up later, those of several rows together (sketch_short_rows-inl.h).
#if defined(ENGINE_KERNELS_SKETCH_FLOATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENGINE_KERNELS_SKETCH_FLOATS_INL_H_
#undef ENGINE_KERNELS_SKETCH_FLOATS_INL_H_
#else
#define ENGINE_KERNELS_SKETCH_FLOATS_INL_H_
#endif

#include <cstring>

#include "engine/kernels/decode-inl.h"
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/phase.h"
#include "engine/kernels/sketch_rows-inl.h"
#include "engine/kernels/sketch_scan.h"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {

// sum + x * phase, rounded once.
#if HWY_NATIVE_FMA
HWY_INLINE FloatVec FusedMulAdd(FloatVec x, FloatVec phase, FloatVec sum) {
  return hn::MulAdd(x, phase, sum);
}
#else
// The product is exact in double. The sum is rounded to double so that its last bit is 1 where it
// is not exact (rounding to odd); then rounding it to float is the only rounding.
HWY_INLINE DoubleVec SumToOdd(DoubleVec x, DoubleVec phase, DoubleVec add) {
  const DoubleTag d;
  const LongTag dl;
  const auto product = hn::Mul(x, phase);
  const auto sum = hn::Add(product, add);
  const auto part = hn::Sub(sum, product);
  const auto error = hn::Add(hn::Sub(product, hn::Sub(sum, part)), hn::Sub(add, part));
  const auto bits = hn::BitCast(dl, sum), one = hn::Set(dl, 1);
  const auto odd = hn::Eq(hn::And(bits, one), one);
  const auto zero = hn::Zero(d);
  const auto inexact = hn::Or(hn::Gt(error, zero), hn::Lt(error, zero));  // false for NaN
  // Away from zero if the error has the sign of the sum, towards zero if not.
  const auto away = hn::Eq(hn::ShiftRight<63>(bits), hn::ShiftRight<63>(hn::BitCast(dl, error)));
  const auto step = hn::IfThenElse(away, one, hn::Set(dl, -1));
  const auto moved = hn::BitCast(d, hn::Add(bits, step));
  const auto moves = hn::AndNot(hn::RebindMask(d, odd), inexact);
  return hn::IfThenElse(moves, moved, sum);
}
HWY_INLINE FloatVec FusedMulAdd(FloatVec x, FloatVec phase, FloatVec sum) {
  const FloatTag f;
  const HalfFloatTag h;
  const DoubleTag d;
  const auto wide = [&](FloatVec v, bool upper) {
    return hn::PromoteTo(d, upper ? hn::UpperHalf(h, v) : hn::LowerHalf(h, v));
  };
  const auto half = [&](bool upper) {
    return hn::DemoteTo(h, SumToOdd(wide(x, upper), wide(phase, upper), wide(sum, upper)));
  };
  return hn::Combine(f, half(true), half(false));
}
#endif

// The first `n` elements at `p`, at most kFloatsPerVec, and zeros; reads no memory after them.
template <class Loader>
HWY_INLINE FloatVec LoadFirst(const uint8_t* p, size_t n) {
  if constexpr (Loader::kBytes == 4) {
    return LoadFirstOf(FloatTag(), p, n);
  } else {
    alignas(64) uint8_t some[kFloatsPerVec * 2] = {};
    const hn::Rebind<uint16_t, FloatTag> bits;
    hn::Store(LoadFirstOf(bits, p, n), bits, reinterpret_cast<uint16_t*>(some));
    return Loader::Load(some);
  }
}

// The sixteen lanes of a piece of a row.
struct FloatLanes {
  FloatVec re[kFloatVecs], im[kFloatVecs];

  HWY_INLINE void Clear() {
    for (size_t k = 0; k < kFloatVecs; ++k) re[k] = im[k] = hn::Zero(FloatTag());
  }
  HWY_INLINE void Load(const float* from_re, const float* from_im) {
    for (size_t k = 0; k < kFloatVecs; ++k) {
      re[k] = hn::LoadU(FloatTag(), from_re + k * kFloatsPerVec);
      im[k] = hn::LoadU(FloatTag(), from_im + k * kFloatsPerVec);
    }
  }
  HWY_INLINE void Store(float* to_re, float* to_im) const {
    for (size_t k = 0; k < kFloatVecs; ++k) {
      hn::StoreU(re[k], FloatTag(), to_re + k * kFloatsPerVec);
      hn::StoreU(im[k], FloatTag(), to_im + k * kFloatsPerVec);
    }
  }
};

// kRows rows of `columns` finite elements, at most kPhaseTable: their lanes, one row after the
// other. kReadsOn: memory goes on so far that last.columns_read() of each row can be read.
template <class Loader, size_t kRows, bool kReadsOn>
HWY_INLINE void SumFloatRows(const uint8_t* p, int64_t columns, const LastPhases<float>& last,
                             float* re, float* im) {
  const FloatTag d;
  const FloatPhases& phases = ColumnFloatPhases();
  constexpr auto kBytes = static_cast<int64_t>(Loader::kBytes);
  constexpr auto kStep = static_cast<int64_t>(kLanes);
  const int64_t row_bytes = columns * kBytes;
  FloatLanes rows[kRows];
  for (size_t r = 0; r < kRows; ++r) rows[r].Clear();
  const auto add = [&](const float* from_re, const float* from_im, int64_t j, size_t k,
                       const auto& load) {
    const auto c = hn::LoadU(d, from_re + k * kFloatsPerVec);
    const auto s = hn::LoadU(d, from_im + k * kFloatsPerVec);
    const uint8_t* q = p + (j + static_cast<int64_t>(k * kFloatsPerVec)) * kBytes;
    for (size_t r = 0; r < kRows; ++r, q += row_bytes) {
      const auto x = load(q);
      rows[r].re[k] = FusedMulAdd(x, c, rows[r].re[k]);
      rows[r].im[k] = FusedMulAdd(x, s, rows[r].im[k]);
    }
  };
  const auto whole = [](const uint8_t* q) { return Loader::Load(q); };
  for (int64_t j = 0; j < last.begin; j += kStep) {
    for (size_t k = 0; k < kFloatVecs; ++k)
      add(phases.re.data() + j, phases.im.data() + j, j, k, whole);
  }
  for (size_t k = 0; k < kFloatVecs; ++k) {
    if (k >= last.vecs) break;
    if constexpr (kReadsOn) {
      add(last.re, last.im, last.begin, k, whole);
    } else {
      const auto left = static_cast<size_t>(columns - last.begin) - k * kFloatsPerVec;
      const size_t n = HWY_MIN(left, kFloatsPerVec);
      add(last.re, last.im, last.begin, k,
          [n](const uint8_t* q) { return LoadFirst<Loader>(q, n); });
    }
  }
  for (size_t r = 0; r < kRows; ++r) rows[r].Store(re + r * kLanes, im + r * kLanes);
}

// `n` elements of one row, which begin with column `j` of a piece: into its lanes.
template <class Loader>
HWY_NOINLINE void AddToFloatPiece(const uint8_t* p, int64_t n, int64_t j, float* re, float* im) {
  const FloatTag d;
  const FloatPhases& phases = ColumnFloatPhases();
  constexpr auto kBytes = static_cast<int64_t>(Loader::kBytes);
  constexpr auto kStep = static_cast<int64_t>(kLanes);
  FloatLanes lanes;
  lanes.Load(re, im);
  const auto add = [&](size_t k, size_t at, FloatVec x) {
    lanes.re[k] = FusedMulAdd(x, hn::LoadU(d, phases.re.data() + at), lanes.re[k]);
    lanes.im[k] = FusedMulAdd(x, hn::LoadU(d, phases.im.data() + at), lanes.im[k]);
  };
  // Fewer than a step, which begin in one of its lanes: zeros stand in the others.
  const auto add_some = [&](int64_t count) {
    if (count == 0) return;
    alignas(64) float some[2 * kLanes] = {};
    const int64_t lane = j % kStep;
    for (int64_t i = 0; i < count; i += static_cast<int64_t>(kFloatsPerVec)) {
      const size_t left = HWY_MIN(static_cast<size_t>(count - i), kFloatsPerVec);
      hn::StoreU(LoadFirst<Loader>(p + i * kBytes, left), d, some + lane + i);
    }
    for (size_t k = 0; k < kFloatVecs; ++k) {
      add(k, static_cast<size_t>(j - lane) + k * kFloatsPerVec,
          hn::Load(d, some + k * kFloatsPerVec));
    }
    j += count;
    p += count * kBytes;
    n -= count;
  };
  add_some(HWY_MIN(n, (kStep - j % kStep) % kStep));
  for (; n >= kStep; n -= kStep, j += kStep, p += kStep * kBytes) {
    for (size_t k = 0; k < kFloatVecs; ++k) {
      const size_t at = k * kFloatsPerVec;
      add(k, static_cast<size_t>(j) + at, Loader::Load(p + at * Loader::kBytes));
    }
  }
  add_some(n);
  lanes.Store(re, im);
}

}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET != HWY_SCALAR
#endif  // include guard
