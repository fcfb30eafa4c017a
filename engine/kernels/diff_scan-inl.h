// One pass over a chunk of both tensors, for each kind of values: floats of one format, doubles,
// complex numbers. Most chunks hold only finite numbers. So a chunk is first read as if all its
// numbers were finite, and once more when some are not.
#if defined(ENGINE_KERNELS_DIFF_SCAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENGINE_KERNELS_DIFF_SCAN_INL_H_
#undef ENGINE_KERNELS_DIFF_SCAN_INL_H_
#else
#define ENGINE_KERNELS_DIFF_SCAN_INL_H_
#endif

#include <cstring>
#include <limits>

#include "engine/kernels/diff_accumulator-inl.h"
#include "engine/kernels/lanes-inl.h"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {

// Signed position of a float among its format's numbers, from its bits: what Ordinal() gives for a
// value of the format itself. Bits 0x00000001 (the smallest positive float32) give 1, 0x80000001
// (its negative) gives -1, and 0 and -0 both give 0. So the difference of two positions is their
// distance in ULP.
HWY_INLINE IntVec OrderOf(IntVec bits, int32_t magnitude_mask) {
  const IntVec sign = hn::BroadcastSignBit(bits);
  return hn::Sub(hn::Xor(hn::And(bits, hn::Set(IntTag(), magnitude_mask)), sign), sign);
}
template <class Loader>
HWY_INLINE IntVec LoadOrder(const uint8_t* p) {
  if constexpr (Loader::kBytes == 4) {
    return OrderOf(hn::LoadU(IntTag(), reinterpret_cast<const int32_t*>(p)), 0x7fffffff);
  } else {
    const hn::Rebind<int16_t, IntTag> d16;
    return OrderOf(hn::PromoteTo(IntTag(), hn::LoadU(d16, reinterpret_cast<const int16_t*>(p))),
                   0x7fff);
  }
}

// `n` values of one format on each side. kUlp: also max_ulp, in that format.
template <class Loader, bool kUlp, bool kSpecials>
HWY_INLINE void ScanFloats(const uint8_t* tp, const uint8_t* gp, int64_t n, double epsilon,
                           DiffNode* node) {
  constexpr int64_t kStep = static_cast<int64_t>(kLanes);
  constexpr size_t kBytes = Loader::kBytes;
  using UnsignedTag = hn::RebindToUnsigned<IntTag>;
  DiffAccumulator accumulator(epsilon);
  SpecialCounter special;
  IntVec unequal = hn::Zero(IntTag());
  auto max_ulp = hn::Zero(UnsignedTag());
  alignas(64) uint8_t tail_t[kLanes * kBytes], tail_g[kLanes * kBytes];
  for (int64_t i = 0; i < n; i += kStep, tp += kLanes * kBytes, gp += kLanes * kBytes) {
    // The last, shorter step is copied into zeros, because vector loads would read memory after the
    // tensors. Zeros on both sides add no difference; Finish subtracts them from the counts.
    if (HWY_UNLIKELY(n - i < kStep)) {
      std::memset(tail_t, 0, sizeof(tail_t));
      std::memset(tail_g, 0, sizeof(tail_g));
      tp =
          static_cast<const uint8_t*>(std::memcpy(tail_t, tp, static_cast<size_t>(n - i) * kBytes));
      gp =
          static_cast<const uint8_t*>(std::memcpy(tail_g, gp, static_cast<size_t>(n - i) * kBytes));
    }
    PrefetchAhead(tp);
    PrefetchAhead(gp);
    for (size_t k = 0; k < kFloatVecs; ++k) {
      const uint8_t* t_at = tp + k * kFloatsPerVec * kBytes;
      const uint8_t* g_at = gp + k * kFloatsPerVec * kBytes;
      const FloatVec t = Loader::Load(t_at), g = Loader::Load(g_at);
      DoubleVec tl, th, gl, gh;
      Loader::Promote(t_at, t, tl, th);
      Loader::Promote(g_at, g, gl, gh);
      if constexpr (kSpecials) {
        const auto keep = [&](DoubleVec& a, DoubleVec& b) HWY_ATTR {
          const auto finite =
              special.Add(hn::IsFinite(a), hn::IsFinite(b),
                          hn::Or(hn::Eq(a, b), hn::And(hn::IsNaN(a), hn::IsNaN(b))));
          a = hn::IfThenElseZero(finite, a);
          b = hn::IfThenElseZero(finite, b);
        };
        keep(tl, gl);
        keep(th, gh);
      } else {
        const auto same = hn::RebindMask(IntTag(), hn::Eq(t, g));
        unequal = hn::Add(unequal, hn::IfThenZeroElse(same, hn::Set(IntTag(), 1)));
      }
      accumulator.AddReal<true>(2 * k, tl, gl, hn::Abs(hn::Sub(tl, gl)));
      accumulator.AddReal<true>(2 * k + 1, th, gh, hn::Abs(hn::Sub(th, gh)));
      if constexpr (kUlp) {
        const IntVec to = LoadOrder<Loader>(t_at), go = LoadOrder<Loader>(g_at);
        auto distance = hn::BitCast(UnsignedTag(), hn::Sub(hn::Max(to, go), hn::Min(to, go)));
        if constexpr (kSpecials) {
          const auto finite = hn::And(hn::IsFinite(t), hn::IsFinite(g));
          distance = hn::IfThenElseZero(hn::RebindMask(UnsignedTag(), finite), distance);
        }
        max_ulp = hn::Max(max_ulp, distance);
      }
    }
  }
  int64_t left_out = 0;
  if constexpr (kSpecials) {
    left_out = special.Finish(node);
  } else {
    node->unequal = hn::GetLane(hn::SumOfLanes(IntTag(), unequal));
  }
  if constexpr (kUlp) node->max_ulp = hn::GetLane(hn::MaxOfLanes(UnsignedTag(), max_ulp));
  accumulator.Finish(n, (kStep - n % kStep) % kStep, left_out, node);
}

// `n` doubles on each side, padded. `exact`: |T - G| of 64-bit integers, or null; then finite on
// both sides.
template <bool kSpecials>
HWY_INLINE void ScanDoubles(const double* tp, const double* gp, const double* exact, int64_t n,
                            double epsilon, DiffNode* node) {
  constexpr int64_t kStep = static_cast<int64_t>(kLanes);
  DiffAccumulator accumulator(epsilon);
  SpecialCounter special;
  const DoubleTag dd;
  LongVec unequal = hn::Zero(LongTag());
  for (int64_t i = 0; i < n; i += kStep) {
    for (size_t k = 0; k < kDoubleVecs; ++k) {
      const size_t at = static_cast<size_t>(i) + k * kDoublesPerVec;
      DoubleVec t = hn::Load(dd, tp + at), g = hn::Load(dd, gp + at);
      if constexpr (kSpecials) {
        const auto finite = special.Add(hn::IsFinite(t), hn::IsFinite(g),
                                        hn::Or(hn::Eq(t, g), hn::And(hn::IsNaN(t), hn::IsNaN(g))));
        t = hn::IfThenElseZero(finite, t);
        g = hn::IfThenElseZero(finite, g);
      }
      const DoubleVec distance = exact ? hn::Load(dd, exact + at) : hn::Abs(hn::Sub(t, g));
      if constexpr (!kSpecials) DiffAccumulator::Count(unequal, hn::Gt(distance, hn::Zero(dd)));
      accumulator.AddReal<false>(k, t, g, distance);
    }
  }
  int64_t left_out = 0;
  if constexpr (kSpecials) {
    left_out = special.Finish(node);
  } else {
    node->unequal = DiffAccumulator::Total(unequal);
  }
  accumulator.Finish(n, (kStep - n % kStep) % kStep, left_out, node);
}

// Modulus() in vectors.
HWY_INLINE DoubleVec ModulusOf(DoubleVec re, DoubleVec im) {
  const DoubleTag dd;
  const DoubleVec a = hn::Abs(re), b = hn::Abs(im);
  const DoubleVec larger = hn::IfThenElse(hn::Lt(a, b), b, a);
  const auto huge = hn::Gt(larger, hn::Set(dd, 0x1p500)),
             tiny = hn::Lt(larger, hn::Set(dd, 0x1p-400));
  const auto up = hn::Set(dd, 0x1p600), down = hn::Set(dd, 0x1p-600), one = hn::Set(dd, 1.0);
  const DoubleVec scale = hn::IfThenElse(huge, down, hn::IfThenElse(tiny, up, one));
  const DoubleVec back = hn::IfThenElse(huge, up, hn::IfThenElse(tiny, down, one));
  const DoubleVec x = hn::Mul(a, scale), y = hn::Mul(b, scale);
  return hn::Mul(hn::Sqrt(hn::Add(hn::Mul(x, x), hn::Mul(y, y))), back);
}

// Real and imaginary parts on each side, padded. One version: complex tensors are rare.
HWY_INLINE void ScanComplex(const double* tr, const double* ti, const double* gr, const double* gi,
                            int64_t n, double epsilon, DiffNode* node) {
  constexpr int64_t kStep = static_cast<int64_t>(kLanes);
  DiffAccumulator accumulator(epsilon);
  SpecialCounter special;
  const DoubleTag dd;
  for (int64_t i = 0; i < n; i += kStep) {
    for (size_t k = 0; k < kDoubleVecs; ++k) {
      const size_t at = static_cast<size_t>(i) + k * kDoublesPerVec;
      DoubleVec a = hn::Load(dd, tr + at), b = hn::Load(dd, ti + at), c = hn::Load(dd, gr + at),
                d = hn::Load(dd, gi + at);
      const auto t_nan = hn::Or(hn::IsNaN(a), hn::IsNaN(b)),
                 g_nan = hn::Or(hn::IsNaN(c), hn::IsNaN(d));
      const auto equal = hn::And(hn::Eq(a, c), hn::Eq(b, d));
      const auto finite = special.Add(hn::And(hn::IsFinite(a), hn::IsFinite(b)),
                                      hn::And(hn::IsFinite(c), hn::IsFinite(d)),
                                      hn::Or(equal, hn::And(t_nan, g_nan)));
      a = hn::IfThenElseZero(finite, a);
      b = hn::IfThenElseZero(finite, b);
      c = hn::IfThenElseZero(finite, c);
      d = hn::IfThenElseZero(finite, d);
      accumulator.AddProducts(k, hn::Add(hn::Mul(a, a), hn::Mul(b, b)),
                              hn::Add(hn::Mul(c, c), hn::Mul(d, d)),
                              hn::Add(hn::Mul(a, c), hn::Mul(b, d)));
      accumulator.AddErrors(k, ModulusOf(hn::Sub(a, c), hn::Sub(b, d)), ModulusOf(c, d),
                            ModulusOf(accumulator.Shift(a), b));
    }
  }
  const int64_t left_out = special.Finish(node);
  accumulator.Finish(n, (kStep - n % kStep) % kStep, left_out, node);
}

// Whether a value is not finite: then the sum of squares is not finite either. The sum of large
// doubles may overflow as well; the second pass then gives the same result as the first.
HWY_INLINE bool MayHoldSpecials(const DiffNode& node) {
  return !(node.tt + node.gg < std::numeric_limits<double>::infinity());
}

template <class Loader, bool kUlp>
HWY_NOINLINE void ScanFloatsTwice(const uint8_t* tp, const uint8_t* gp, int64_t n, double epsilon,
                                  DiffNode* node) {
  ScanFloats<Loader, kUlp, false>(tp, gp, n, epsilon, node);
  if (!MayHoldSpecials(*node)) return;
  *node = DiffNode();
  ScanFloats<Loader, kUlp, true>(tp, gp, n, epsilon, node);
}

}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET != HWY_SCALAR
#endif  // include guard
