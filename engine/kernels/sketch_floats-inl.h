// The sums of the columns of rows of float32, float16 and bfloat16, in float: one fused
// multiply-add for real and imaginary part each, in sixteen lanes; then rows are added up sixteen
// at a time.
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

// Which elements count: those below a magnitude. NaN is not.
template <bool kAll>
struct Counted {
  FloatVec limit;
  HWY_INLINE FloatVec operator()(FloatVec v) const {
    if constexpr (kAll) return v;
    return hn::IfThenElseZero(hn::Lt(hn::Abs(v), limit), v);
  }
};

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

// kRows rows of `columns` elements, at most kPhaseTable: their lanes, one row after the other.
template <class Loader, bool kAll, size_t kRows>
HWY_INLINE void SumFloatRows(const uint8_t* p, int64_t columns, Counted<kAll> counted, float* re,
                             float* im) {
  const FloatTag d;
  const FloatPhases& phases = ColumnFloatPhases();
  constexpr auto kBytes = static_cast<int64_t>(Loader::kBytes);
  constexpr auto kStep = static_cast<int64_t>(kLanes);
  const int64_t row_bytes = columns * kBytes;
  FloatLanes rows[kRows];
  for (size_t r = 0; r < kRows; ++r) rows[r].Clear();
  const auto add = [&](int64_t j, size_t k, const auto& load) {
    const auto at = static_cast<size_t>(j) + k * kFloatsPerVec;
    const auto c = hn::LoadU(d, phases.re.data() + at), s = hn::LoadU(d, phases.im.data() + at);
    const uint8_t* q = p + static_cast<int64_t>(at) * kBytes;
    for (size_t r = 0; r < kRows; ++r, q += row_bytes) {
      const auto x = counted(load(q));
      rows[r].re[k] = FusedMulAdd(x, c, rows[r].re[k]);
      rows[r].im[k] = FusedMulAdd(x, s, rows[r].im[k]);
    }
  };
  int64_t j = 0;
  for (; j + kStep <= columns; j += kStep) {
    for (size_t k = 0; k < kFloatVecs; ++k)
      add(j, k, [](const uint8_t* q) { return Loader::Load(q); });
  }
  if (j < columns) {
    for (size_t k = 0; k < kFloatVecs; ++k) {
      const int64_t left = columns - j - static_cast<int64_t>(k * kFloatsPerVec);
      if (left <= 0) break;
      const size_t n = HWY_MIN(static_cast<size_t>(left), kFloatsPerVec);
      add(j, k, [n](const uint8_t* q) { return LoadFirst<Loader>(q, n); });
    }
  }
  for (size_t r = 0; r < kRows; ++r) rows[r].Store(re + r * kLanes, im + r * kLanes);
}

// `n` elements of one row, which begin with column `j` of a piece: into its lanes.
template <class Loader, bool kAll>
HWY_NOINLINE void AddToFloatPiece(const uint8_t* p, int64_t n, int64_t j, Counted<kAll> counted,
                                  float* re, float* im) {
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
          counted(hn::Load(d, some + k * kFloatsPerVec)));
    }
    j += count;
    p += count * kBytes;
    n -= count;
  };
  add_some(HWY_MIN(n, (kStep - j % kStep) % kStep));
  for (; n >= kStep; n -= kStep, j += kStep, p += kStep * kBytes) {
    for (size_t k = 0; k < kFloatVecs; ++k) {
      const size_t at = k * kFloatsPerVec;
      add(k, static_cast<size_t>(j) + at, counted(Loader::Load(p + at * Loader::kBytes)));
    }
  }
  add_some(n);
  lanes.Store(re, im);
}

// In each block of four floats of `a`, ..., `d` all are added: (0 + 2) + (1 + 3). The block of the
// result has the four sums.
HWY_INLINE FloatVec AddBlocks(FloatVec a, FloatVec b, FloatVec c, FloatVec d) {
  const FloatTag f;
  const DoubleTag g;
  const auto pairs = [&](FloatVec x, FloatVec y) {
    return hn::Add(hn::InterleaveLower(f, x, y), hn::InterleaveUpper(f, x, y));
  };
  const auto x = hn::BitCast(g, pairs(a, b)), y = hn::BitCast(g, pairs(c, d));
  return hn::Add(hn::BitCast(f, hn::InterleaveLower(g, x, y)),
                 hn::BitCast(f, hn::InterleaveUpper(g, x, y)));
}

// AddTree (sketch_node.h) of the lanes of sixteen rows.
HWY_INLINE void AddFloatLanes(const float* lanes, float* out) {
  const FloatTag f;
  const auto row = [&](size_t r) { return lanes + r * kLanes; };
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  const hn::Half<FloatTag> half;
  // Lane j and j + 8 of two rows.
  const auto two = [&](size_t r) {
    const auto lower = hn::Combine(f, hn::LoadU(half, row(r + 4)), hn::LoadU(half, row(r)));
    const auto upper = hn::Combine(f, hn::LoadU(half, row(r + 4) + 8), hn::LoadU(half, row(r) + 8));
    return hn::Add(lower, upper);
  };
  // And j + 4: a block of each of the rows r, r + 4, r + 8, r + 12.
  const auto four = [&](size_t r) {
    const FloatVec x = two(r), y = two(r + 8);
    return hn::Add(FloatVec{_mm512_shuffle_f32x4(x.raw, y.raw, 0x88)},
                   FloatVec{_mm512_shuffle_f32x4(x.raw, y.raw, 0xdd)});
  };
  hn::StoreU(AddBlocks(four(0), four(1), four(2), four(3)), f, out);
#elif HWY_TARGET == HWY_AVX2
  const auto whole = [&](size_t r) {
    return hn::Add(hn::LoadU(f, row(r)), hn::LoadU(f, row(r) + kFloatsPerVec));
  };
  // A block of each of the rows r and r + 4.
  const auto two = [&](size_t r) {
    const FloatVec x = whole(r), y = whole(r + 4);
    return hn::Add(hn::ConcatLowerLower(f, y, x), hn::ConcatUpperUpper(f, y, x));
  };
  for (size_t r = 0; r < kLanes; r += 8)
    hn::StoreU(AddBlocks(two(r), two(r + 1), two(r + 2), two(r + 3)), f, out + r);
#else
  static_assert(kFloatsPerVec == 4);
  const auto one = [&](size_t r) {
    const auto part = [&](size_t k) { return hn::LoadU(f, row(r) + 4 * k); };
    return hn::Add(hn::Add(part(0), part(2)), hn::Add(part(1), part(3)));
  };
  for (size_t r = 0; r < kLanes; r += 4)
    hn::StoreU(AddBlocks(one(r), one(r + 1), one(r + 2), one(r + 3)), f, out + r);
#endif
}

// Rows that are short: several of them fit a vector.
inline constexpr int64_t kShortRow = 8;

// `count` rows of kColumns columns, at most kShortRow. The compiler makes vectors over rows of the
// loop.
template <int64_t kColumns>
HWY_NOINLINE void SumShortFloatRows(const float* HWY_RESTRICT p, int64_t count,
                                    float* HWY_RESTRICT re, float* HWY_RESTRICT im) {
  float c[8] = {}, s[8] = {};
  for (size_t j = 0; j < kColumns; ++j) {
    c[j] = ColumnFloatPhases().re[j];
    s[j] = ColumnFloatPhases().im[j];
  }
  for (int64_t i = 0; i < count; ++i) {
    const float* x = p + i * kColumns;
    const auto tree = [&](const float* phase) {  // AddTree
      const auto four = [&](int64_t j) {
        const float product = x[j] * phase[j];
        return j + 4 < kColumns ? product + x[j + 4] * phase[j + 4] : product;
      };
      const float even = kColumns > 2 ? four(0) + four(2) : four(0);
      return even + (kColumns > 3 ? four(1) + four(3) : four(1));
    };
    re[i] = tree(c);
    im[i] = tree(s);
  }
}

HWY_INLINE void SumShortFloatRows(const float* p, int64_t columns, int64_t count, float* re,
                                  float* im) {
  switch (columns) {
    case 2:
      return SumShortFloatRows<2>(p, count, re, im);
    case 3:
      return SumShortFloatRows<3>(p, count, re, im);
    case 4:
      return SumShortFloatRows<4>(p, count, re, im);
    case 5:
      return SumShortFloatRows<5>(p, count, re, im);
    case 6:
      return SumShortFloatRows<6>(p, count, re, im);
    case 7:
      return SumShortFloatRows<7>(p, count, re, im);
    default:
      return SumShortFloatRows<8>(p, count, re, im);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET != HWY_SCALAR
#endif  // include guard
