#include "engine/kernels/diff.h"

#include "engine/kernels/chunk_reader.h"
#include "engine/kernels/chunks.h"
#include "engine/kernels/diff_node.h"
#include "engine/kernels/diff_pairs.h"
#include "engine/kernels/diff_scalar.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/diff.cc"
#include <hwy/foreach_target.h>  // compiles this file once for each target
#include <hwy/highway.h>

#include "engine/kernels/decode-inl.h"
#include "engine/kernels/lanes-inl.h"

#ifndef ENGINE_KERNELS_DIFF_CC_
#define ENGINE_KERNELS_DIFF_CC_
namespace msprobe {
namespace {

// The same stretch of both tensors, contiguous.
struct ChunkPair {
  DType t, g;
  const uint8_t *tp, *gp;
  int64_t n;  // values
};

// A pair to be found: the first that is not the same; or, `mismatch`, the first that is also not
// finite; or, `distance` > 0, the first finite one that far apart.
struct Search {
  PairKind kind;
  bool mismatch = false;
  double distance = 0;

  bool Matches(const Pair& p) const {
    if (distance > 0) return p.Finite() && p.Distance(kind) == distance;
    return !p.Same() && (!mismatch || !p.Finite());
  }
};

// Index in the chunk, -1 if none matches.
[[maybe_unused]] int64_t FindPairScalar(const ChunkPair& c, const Search& search) {
  for (int64_t v = 0; v < c.n; ++v) {
    if (search.Matches(PairAt(c.t, c.tp, c.g, c.gp, v))) return v;
  }
  return -1;
}

}  // namespace
}  // namespace msprobe
#endif

HWY_BEFORE_NAMESPACE();
namespace msprobe {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void ChunkDiff(const ChunkPair& c, DiffNode* node) {
  *node = ChunkDiffScalar(c.t, c.tp, c.g, c.gp, c.n, 0);
}
int64_t FindPair(const ChunkPair& c, const Search& search) { return FindPairScalar(c, search); }

#else

// Sums, extrema and counts over the lanes. Padding is zero on both sides: it adds nothing to sums
// and extrema, and Finish takes it out of the counts.
class DiffAccumulator {
 public:
  explicit HWY_INLINE DiffAccumulator(double epsilon) : epsilon_(hn::Set(DoubleTag(), epsilon)) {
    const auto zero = hn::Zero(DoubleTag());
    for (size_t k = 0; k < kDoubleVecs; ++k)
      tt_[k] = gg_[k] = tg_[k] = dd_[k] = relative_[k] = zero;
    max_abs_ = max_relative_ = zero;
    golden_zero_ = within_1e3_ = within_5e3_ = hn::Zero(LongTag());
  }

  DoubleVec Shift(DoubleVec t) const { return hn::Sub(hn::Add(t, epsilon_), epsilon_); }

  // Vector `k` of the lanes. Real values of which products are exact may be fused.
  template <bool kExactProducts>
  HWY_INLINE void AddReal(size_t k, DoubleVec t, DoubleVec g, DoubleVec distance) {
    if constexpr (kExactProducts) {
      tt_[k] = hn::MulAdd(t, t, tt_[k]);
      gg_[k] = hn::MulAdd(g, g, gg_[k]);
      tg_[k] = hn::MulAdd(t, g, tg_[k]);
    } else {
      tt_[k] = hn::Add(tt_[k], hn::Mul(t, t));
      gg_[k] = hn::Add(gg_[k], hn::Mul(g, g));
      tg_[k] = hn::Add(tg_[k], hn::Mul(t, g));
    }
    AddErrors(k, distance, hn::Abs(g), hn::Abs(Shift(t)));
  }

  HWY_INLINE void AddProducts(size_t k, DoubleVec tt, DoubleVec gg, DoubleVec tg) {
    tt_[k] = hn::Add(tt_[k], tt);
    gg_[k] = hn::Add(gg_[k], gg);
    tg_[k] = hn::Add(tg_[k], tg);
  }

  // `shifted`: |T + eps - eps|, the numerator where the golden is zero.
  HWY_INLINE void AddErrors(size_t k, DoubleVec distance, DoubleVec golden, DoubleVec shifted) {
    const DoubleTag dd;
    const auto zero = hn::Eq(golden, hn::Zero(dd));
    const auto error =
        hn::Div(hn::IfThenElse(zero, shifted, distance), hn::IfThenElse(zero, epsilon_, golden));
    dd_[k] = hn::Add(dd_[k], hn::Mul(distance, distance));
    relative_[k] = hn::Add(relative_[k], hn::IfThenZeroElse(zero, error));
    max_abs_ = hn::Max(max_abs_, distance);
    max_relative_ = hn::Max(max_relative_, error);
    Count(golden_zero_, zero);
    Count(within_1e3_, hn::Lt(error, hn::Set(dd, 0.001)));
    Count(within_5e3_, hn::Lt(error, hn::Set(dd, 0.005)));
  }

  // `n` values were added, and `padding` zeros. `left_out`: how many of the n were not finite and
  // given as zeros; node->mismatch of them differ.
  HWY_INLINE void Finish(int64_t n, int64_t padding, int64_t left_out, DiffNode* node) {
    node->tt = AddLanes(tt_);
    node->gg = AddLanes(gg_);
    node->tg = AddLanes(tg_);
    node->dd = AddLanes(dd_);
    node->relative = AddLanes(relative_);
    node->max_abs = hn::GetLane(hn::MaxOfLanes(DoubleTag(), max_abs_));
    node->max_relative = hn::GetLane(hn::MaxOfLanes(DoubleTag(), max_relative_));
    node->finite = n - left_out;
    node->golden_zero = Total(golden_zero_) - padding - left_out;
    node->within_1e3 = Total(within_1e3_) - padding - node->mismatch;
    node->within_5e3 = Total(within_5e3_) - padding - node->mismatch;
  }

  template <class M>
  static HWY_INLINE void Count(LongVec& counter, M mask) {
    counter = hn::Sub(counter, hn::VecFromMask(LongTag(), hn::RebindMask(LongTag(), mask)));
  }
  static HWY_INLINE int64_t Total(LongVec counter) {
    return hn::GetLane(hn::SumOfLanes(LongTag(), counter));
  }

 private:
  DoubleVec tt_[kDoubleVecs], gg_[kDoubleVecs], tg_[kDoubleVecs], dd_[kDoubleVecs],
      relative_[kDoubleVecs];
  DoubleVec max_abs_, max_relative_, epsilon_;
  LongVec golden_zero_, within_1e3_, within_5e3_;
};

// Counts of what is not finite, and the values with such pairs replaced by zeros.
struct SpecialCounter {
  LongVec target, golden, unequal, mismatch, left_out;

  HWY_INLINE SpecialCounter() {
    target = golden = unequal = mismatch = left_out = hn::Zero(LongTag());
  }

  // `same`: equal, or NaN on both sides.
  template <class M>
  HWY_INLINE M Add(M target_finite, M golden_finite, M same) {
    const M finite = hn::And(target_finite, golden_finite);
    DiffAccumulator::Count(target, hn::Not(target_finite));
    DiffAccumulator::Count(golden, hn::Not(golden_finite));
    DiffAccumulator::Count(unequal, hn::Not(same));
    DiffAccumulator::Count(mismatch, hn::Not(hn::Or(finite, same)));
    DiffAccumulator::Count(left_out, hn::Not(finite));
    return finite;
  }
  // Returns the number left out.
  HWY_INLINE int64_t Finish(DiffNode* node) const {
    node->nonfinite_target = DiffAccumulator::Total(target);
    node->nonfinite_golden = DiffAccumulator::Total(golden);
    node->unequal = DiffAccumulator::Total(unequal);
    node->mismatch = DiffAccumulator::Total(mismatch);
    return DiffAccumulator::Total(left_out);
  }
};

// Signed position of a float among its format's numbers, from its bits: what Ordinal() gives for a
// value of the format itself.
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

// Chunk buffers are padded with zeros to whole lanes.
HWY_INLINE void PadWithZeros(double* v, int64_t n) {
  for (int64_t i = n; i % static_cast<int64_t>(kLanes) != 0; ++i) v[i] = 0.0;
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

// Sums of squares are finite unless a value is not (or, in doubles, too large: then the second look
// finds nothing new).
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

// Largest distance in `format` where both sides are finite, of any floats or doubles.
template <typename T>
HWY_INLINE uint64_t MaxUlp(const T* t, const T* g, int64_t n, FloatFormat format) {
  uint64_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(t[i]) || !std::isfinite(g[i])) continue;
    const uint64_t distance = OrdinalDistance(Ordinal(t[i], format), Ordinal(g[i], format));
    largest = distance > largest ? distance : largest;
  }
  return largest;
}

// Two dtypes that fit float, by way of decoded copies.
HWY_NOINLINE void DiffDecodedFloats(const ChunkPair& c, double epsilon, DiffNode* node) {
  alignas(64) float t[kChunkElements], g[kChunkElements];
  DecodeFloats(c.t, c.tp, c.n / ValuesPerElement(c.t), t);
  DecodeFloats(c.g, c.gp, c.n / ValuesPerElement(c.g), g);
  ScanFloatsTwice<LoadFloat32, false>(reinterpret_cast<const uint8_t*>(t),
                                      reinterpret_cast<const uint8_t*>(g), c.n, epsilon, node);
  if (UlpKindOf(c.t, c.g) == UlpKind::kFormat)
    node->max_ulp = MaxUlp(t, g, c.n, CoarserFormat(c.t, c.g));
}

HWY_NOINLINE void DiffDoubles(const ChunkPair& c, double epsilon, DiffNode* node) {
  alignas(64) double t[kChunkElements], g[kChunkElements];
  DecodeDoubles(c.t, c.tp, c.n / ValuesPerElement(c.t), t);
  DecodeDoubles(c.g, c.gp, c.n / ValuesPerElement(c.g), g);
  PadWithZeros(t, c.n);
  PadWithZeros(g, c.n);
  ScanDoubles<false>(t, g, nullptr, c.n, epsilon, node);
  if (MayHoldSpecials(*node)) {
    *node = DiffNode();
    ScanDoubles<true>(t, g, nullptr, c.n, epsilon, node);
  }
  if (UlpKindOf(c.t, c.g) == UlpKind::kFormat)
    node->max_ulp = MaxUlp(t, g, c.n, CoarserFormat(c.t, c.g));
}

HWY_NOINLINE void DiffIntegers(const ChunkPair& c, double epsilon, DiffNode* node) {
  alignas(64) double t[kChunkElements], g[kChunkElements], distance[kChunkElements];
  DecodeDoubles(c.t, c.tp, c.n, t);
  DecodeDoubles(c.g, c.gp, c.n, g);
  uint64_t largest = 0;
  for (int64_t i = 0; i < c.n; ++i) {
    const uint64_t d = WholeDistance(LoadWhole(c.t, c.tp, i), LoadWhole(c.g, c.gp, i));
    largest = d > largest ? d : largest;
    distance[i] = static_cast<double>(d);
  }
  PadWithZeros(t, c.n);
  PadWithZeros(g, c.n);
  PadWithZeros(distance, c.n);
  ScanDoubles<false>(t, g, distance, c.n, epsilon, node);
  node->max_ulp = largest;
}

HWY_NOINLINE void DiffComplex(const ChunkPair& c, double epsilon, DiffNode* node) {
  alignas(64) double tr[kChunkElements], ti[kChunkElements], gr[kChunkElements], gi[kChunkElements];
  DecodeComplex(c.t, c.tp, c.n / ValuesPerElement(c.t), tr, ti);
  DecodeComplex(c.g, c.gp, c.n / ValuesPerElement(c.g), gr, gi);
  for (double* v : {tr, ti, gr, gi}) PadWithZeros(v, c.n);
  ScanComplex(tr, ti, gr, gi, c.n, epsilon, node);
}

void ChunkDiff(const ChunkPair& c, DiffNode* node) {
  const double epsilon = EpsilonOf(c.t, c.g);
  switch (PairKindOf(c.t, c.g)) {
    case PairKind::kFloat:
      if (c.t != c.g) {
        DiffDecodedFloats(c, epsilon, node);
      } else if (c.t == DType::kFloat32) {
        ScanFloatsTwice<LoadFloat32, true>(c.tp, c.gp, c.n, epsilon, node);
      } else if (c.t == DType::kBFloat16) {
        ScanFloatsTwice<LoadBFloat16, true>(c.tp, c.gp, c.n, epsilon, node);
      } else if (c.t == DType::kFloat16) {
        ScanFloatsTwice<LoadFloat16, true>(c.tp, c.gp, c.n, epsilon, node);
      } else {
        DiffDecodedFloats(c, epsilon, node);
      }
      break;
    case PairKind::kDouble:
      DiffDoubles(c, epsilon, node);
      break;
    case PairKind::kInteger:
      DiffIntegers(c, epsilon, node);
      break;
    case PairKind::kComplex:
      DiffComplex(c, epsilon, node);
      break;
  }
  if (UlpKindOf(c.t, c.g) == UlpKind::kDifference && PairKindOf(c.t, c.g) != PairKind::kInteger) {
    node->max_ulp = static_cast<uint64_t>(node->max_abs);
  }
}

// Real dtypes are decoded and compared a block at a time.
int64_t FindPair(const ChunkPair& c, const Search& search) {
  const PairKind kind = PairKindOf(c.t, c.g);
  if (kind == PairKind::kInteger || kind == PairKind::kComplex) return FindPairScalar(c, search);
  constexpr int64_t kBlock = 256;
  double t[kBlock], g[kBlock];
  const int64_t tv = ValuesPerElement(c.t), gv = ValuesPerElement(c.g);
  const int64_t t_size = static_cast<int64_t>(DTypeSize(c.t)),
                g_size = static_cast<int64_t>(DTypeSize(c.g));
  for (int64_t first = 0; first < c.n; first += kBlock) {
    const int64_t n = c.n - first < kBlock ? c.n - first : kBlock;
    DecodeDoubles(c.t, c.tp + first / tv * t_size, n / tv, t);
    DecodeDoubles(c.g, c.gp + first / gv * g_size, n / gv, g);
    for (int64_t i = 0; i < n; ++i) {
      if (search.Matches(Pair{t[i], 0, g[i], 0})) return first + i;
    }
  }
  return -1;
}

#endif  // HWY_TARGET == HWY_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace msprobe
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msprobe {
namespace {

HWY_EXPORT(ChunkDiff);
HWY_EXPORT(FindPair);

// Two tensors cut into the same chunks of values.
class PairReader {
 public:
  PairReader(const TensorView& target, const TensorView& golden)
      : t_(target.dtype), g_(golden.dtype), target_(target), golden_(golden) {}

  // The windows of one thread.
  struct Windows {
    ChunkReader::Window target, golden;
    explicit Windows(bool one_chunk = false) : target(one_chunk), golden(one_chunk) {}
  };

  // Values [first, first + n).
  ChunkPair Read(int64_t first, int64_t n, Windows* windows) const {
    const int64_t tv = ValuesPerElement(t_), gv = ValuesPerElement(g_);
    return {t_, g_, target_.Read(first / tv, n / tv, &windows->target),
            golden_.Read(first / gv, n / gv, &windows->golden), n};
  }

 private:
  DType t_, g_;
  ChunkReader target_, golden_;
};

DiffNode DiffOfChunk(const ChunkPair& pair, int64_t chunk) {
  DiffNode node;
  HWY_DYNAMIC_DISPATCH(ChunkDiff)(pair, &node);
  node.SetChunk(chunk);
  return node;
}

// The index in the tensor of the pair searched for, which is known to be in `chunk`.
[[gnu::noinline]] int64_t FindInChunk(const PairReader& reader, int64_t chunk, int64_t count,
                                      const Search& search, Pair* found) {
  PairReader::Windows windows(/*one_chunk=*/true);
  const int64_t first = chunk * kChunkElements;
  const ChunkPair c = reader.Read(first, std::min(kChunkElements, count - first), &windows);
  const int64_t at = HWY_DYNAMIC_DISPATCH(FindPair)(c, search);
  if (at < 0) return -1;
  *found = PairAt(c.t, c.tp, c.g, c.gp, at);
  return first + at;
}

void FindIndices(const PairReader& reader, const DiffNode& node, PairKind kind, int64_t count,
                 Diff* diff) {
  Pair pair;
  diff->first_index = FindInChunk(reader, node.first_chunk, count, {.kind = kind}, &pair);
  if (node.mismatch > 0) {
    diff->worst_index =
        FindInChunk(reader, node.mismatch_chunk, count, {.kind = kind, .mismatch = true}, &pair);
  } else {
    diff->worst_index = FindInChunk(reader, node.worst_chunk, count,
                                    {.kind = kind, .distance = node.max_abs}, &pair);
  }
  if (diff->worst_index < 0) return;
  diff->worst_target = kind == PairKind::kComplex ? Modulus(pair.t, pair.ti) : pair.t;
  diff->worst_golden = kind == PairKind::kComplex ? Modulus(pair.g, pair.gi) : pair.g;
}

}  // namespace

Result<Diff> ComputeDiff(const TensorView& target, const TensorView& golden, ThreadPool* pool) {
  const int64_t count = target.numel() * ValuesPerElement(target.dtype);
  const int64_t golden_count = golden.numel() * ValuesPerElement(golden.dtype);
  if (count != golden_count) {
    return InvalidArgument("cannot compare tensors of different size")
        .Expected(std::to_string(count) + " elements in the golden, as in the target of shape " +
                  ShapeText(target.dims()))
        .Found(std::to_string(golden_count) + " of shape " + ShapeText(golden.dims()));
  }
  if (count == 0) return Diff();
  const FloatEnvironment environment;
  const PairReader reader(target, golden);
  const DiffNode node = FoldChunks<DiffNode, PairReader::Windows>(
      count, pool, [&](int64_t first, int64_t n, int64_t chunk, PairReader::Windows& windows) {
        return DiffOfChunk(reader.Read(first, n, &windows), chunk);
      });
  Diff diff = FinishDiff(node, UlpKindOf(target.dtype, golden.dtype), count);
  if (node.unequal > 0)
    FindIndices(reader, node, PairKindOf(target.dtype, golden.dtype), count, &diff);
  return diff;
}

}  // namespace msprobe
#endif  // HWY_ONCE
