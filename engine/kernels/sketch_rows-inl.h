// The sums of the columns of rows, each element times its phase: of a piece of one row, of several
// rows at once, of many short rows. Values are converted to double when they are read.
#if defined(ENGINE_KERNELS_SKETCH_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENGINE_KERNELS_SKETCH_ROWS_INL_H_
#undef ENGINE_KERNELS_SKETCH_ROWS_INL_H_
#else
#define ENGINE_KERNELS_SKETCH_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "engine/kernels/decode-inl.h"
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/phase.h"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {

using Pair = hn::Vec<hn::FixedTag<double, 2> >;

// sum + x * phase, where the product is exact.
template <bool kExact>
HWY_INLINE DoubleVec AddProduct(DoubleVec x, DoubleVec phase, DoubleVec sum) {
  return kExact ? hn::MulAdd(x, phase, sum) : hn::Add(sum, hn::Mul(x, phase));
}

// The first `n` numbers at `p`, and zeros; reads no memory after them.
template <class D, typename T = hn::TFromD<D> >
HWY_INLINE hn::Vec<D> LoadFirstOf(D d, const uint8_t* p, size_t n) {
#if HWY_MEM_OPS_MIGHT_FAULT
  alignas(64) T some[hn::MaxLanes(D())] = {};
  std::memcpy(some, p, n * sizeof(T));
  return hn::Load(d, some);
#else
  return hn::MaskedLoad(hn::FirstN(d, n), d, reinterpret_cast<const T*>(p));
#endif
}

// A source brings kDoublesPerVec consecutive values at `p` to double; the second function only the
// first `n` of them, and zeros.
struct Float32Values {
  static constexpr int64_t kBytes = 4;
  static constexpr bool kExact = true, kDecoded = false;
  static HWY_INLINE DoubleVec Load(const uint8_t* p) {
    return hn::PromoteTo(DoubleTag(), hn::LoadU(HalfFloatTag(), reinterpret_cast<const float*>(p)));
  }
  static HWY_INLINE DoubleVec LoadFirst(const uint8_t* p, size_t n) {
    return hn::PromoteTo(DoubleTag(), LoadFirstOf(HalfFloatTag(), p, n));
  }
};
struct DoubleValues {
  static constexpr int64_t kBytes = 8;
  static constexpr bool kExact = false, kDecoded = false;
  static HWY_INLINE DoubleVec Load(const uint8_t* p) {
    return hn::LoadU(DoubleTag(), reinterpret_cast<const double*>(p));
  }
  static HWY_INLINE DoubleVec LoadFirst(const uint8_t* p, size_t n) {
    return LoadFirstOf(DoubleTag(), p, n);
  }
};
// The same, decoded to double first: short rows are cheaper so.
struct DecodedValues : DoubleValues {
  static constexpr bool kDecoded = true;
};
struct BFloat16Values {
  static constexpr int64_t kBytes = 2;
  static constexpr bool kExact = true, kDecoded = false;
  using Bits = hn::Rebind<uint16_t, DoubleTag>;
  using Wide = hn::Rebind<uint32_t, DoubleTag>;
  static HWY_INLINE DoubleVec Of(hn::Vec<Bits> bits) {
    const auto wide = hn::ShiftLeft<16>(hn::PromoteTo(Wide(), bits));
    return hn::PromoteTo(DoubleTag(), hn::BitCast(HalfFloatTag(), wide));
  }
  static HWY_INLINE DoubleVec Load(const uint8_t* p) {
    return Of(hn::LoadU(Bits(), reinterpret_cast<const uint16_t*>(p)));
  }
  static HWY_INLINE DoubleVec LoadFirst(const uint8_t* p, size_t n) {
    return Of(LoadFirstOf(Bits(), p, n));
  }
};
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
struct Float16Values {
  static constexpr int64_t kBytes = 2;
  static constexpr bool kExact = true, kDecoded = false;
  using Half = hn::Rebind<hwy::float16_t, DoubleTag>;
  static HWY_INLINE DoubleVec Load(const uint8_t* p) {
    const auto half = hn::LoadU(Half(), reinterpret_cast<const hwy::float16_t*>(p));
    return hn::PromoteTo(DoubleTag(), hn::PromoteTo(HalfFloatTag(), half));
  }
  static HWY_INLINE DoubleVec LoadFirst(const uint8_t* p, size_t n) {
    const hn::Rebind<uint16_t, DoubleTag> bits;
    const auto half = hn::BitCast(Half(), LoadFirstOf(bits, p, n));
    return hn::PromoteTo(DoubleTag(), hn::PromoteTo(HalfFloatTag(), half));
  }
};
inline constexpr bool kReadsFloat16 = true;
#else
using Float16Values = DoubleValues;
inline constexpr bool kReadsFloat16 = false;
#endif

// Vectors of eight lanes.
inline constexpr size_t kVecsOf8 = 8 / kDoublesPerVec;

// The sum of the parts of a vector of two numbers each.
HWY_INLINE Pair AddPairs(Pair pair) { return pair; }
template <class V>
HWY_INLINE Pair AddPairs(V pairs) {
  const hn::Half<hn::DFromV<V> > half;
  return AddPairs(hn::Add(hn::LowerHalf(half, pairs), hn::UpperHalf(half, pairs)));
}

// AddTree of eight lanes each: real part and imaginary part.
HWY_INLINE Pair AddTrees(const DoubleVec (&re)[kVecsOf8], const DoubleVec (&im)[kVecsOf8]) {
  const DoubleTag d;
  DoubleVec pairs[kVecsOf8];  // re 0 + 1, im 0 + 1, re 2 + 3, im 2 + 3, ...
  for (size_t k = 0; k < kVecsOf8; ++k) {
    pairs[k] = hn::Add(hn::InterleaveLower(d, re[k], im[k]), hn::InterleaveUpper(d, re[k], im[k]));
  }
  for (size_t n = kVecsOf8 / 2; n > 0; n /= 2) {
    for (size_t k = 0; k < n; ++k) pairs[k] = hn::Add(pairs[k], pairs[k + n]);
  }
  return AddPairs(pairs[0]);
}

// The lanes of a row, or of a piece of it.
template <size_t kLaneGroups, bool kExact>
struct Piece {
  DoubleVec re[kLaneGroups][kVecsOf8], im[kLaneGroups][kVecsOf8];

  HWY_INLINE void Clear() {
    for (size_t g = 0; g < kLaneGroups; ++g) {
      for (size_t k = 0; k < kVecsOf8; ++k) re[g][k] = im[g][k] = hn::Zero(DoubleTag());
    }
  }
  HWY_INLINE Pair Sum() const {
    if constexpr (kLaneGroups == 1) {
      return AddTrees(re[0], im[0]);
    } else {
      DoubleVec sum_re[kVecsOf8], sum_im[kVecsOf8];
      for (size_t k = 0; k < kVecsOf8; ++k) {
        sum_re[k] = hn::Add(re[0][k], re[1][k]);
        sum_im[k] = hn::Add(im[0][k], im[1][k]);
      }
      return AddTrees(sum_re, sum_im);
    }
  }
};

// The phases of the last columns of a row, from a multiple of its lanes on, and zeros.
template <typename T>
struct LastPhases {
  alignas(64) T re[16] = {}, im[16] = {};
  int64_t begin;  // column
  size_t vecs;    // that hold columns

  template <class Phases>
  LastPhases(const Phases& phases, int64_t columns, int64_t lanes) {
    begin = (columns - 1) / lanes * lanes;
    const auto count = static_cast<size_t>(columns - begin);
    vecs = (count + kPerVec - 1) / kPerVec;
    std::copy_n(phases.re.data() + begin, count, re);
    std::copy_n(phases.im.data() + begin, count, im);
  }
  // Columns that are read of a row where memory goes on so far. Those behind its end are finite,
  // and count as zeros.
  int64_t columns_read() const { return begin + static_cast<int64_t>(vecs * kPerVec); }

 private:
  static constexpr size_t kPerVec = sizeof(T) == 4 ? kFloatsPerVec : kDoublesPerVec;
};

// kRows rows of `columns` values, at most kPhaseTable: their sums, real part, imaginary part, ...
// kReadsOn: of each row last.columns_read() can be read.
template <class Source, size_t kRows, size_t kLaneGroups, bool kReadsOn>
HWY_INLINE void SumRows(const uint8_t* p, int64_t columns, const LastPhases<double>& last,
                        double* out) {
  const DoubleTag d;
  constexpr int64_t kStep = 8 * kLaneGroups;
  const PhaseTable& phases = ColumnPhases();
  const int64_t row_bytes = columns * Source::kBytes;
  Piece<kLaneGroups, Source::kExact> rows[kRows];
  for (size_t r = 0; r < kRows; ++r) rows[r].Clear();
  const auto add = [&](const double* from_re, const double* from_im, int64_t j, size_t v,
                       const auto& load) {
    const size_t lane = v * kDoublesPerVec, g = v / kVecsOf8, k = v % kVecsOf8;
    const auto re = hn::LoadU(d, from_re + lane), im = hn::LoadU(d, from_im + lane);
    const uint8_t* q = p + (j + static_cast<int64_t>(lane)) * Source::kBytes;
    for (size_t r = 0; r < kRows; ++r, q += row_bytes) {
      const auto x = load(q);
      rows[r].re[g][k] = AddProduct<Source::kExact>(x, re, rows[r].re[g][k]);
      rows[r].im[g][k] = AddProduct<Source::kExact>(x, im, rows[r].im[g][k]);
    }
  };
  const auto whole = [](const uint8_t* q) { return Source::Load(q); };
  for (int64_t j = 0; j < last.begin; j += kStep) {
    for (size_t v = 0; v < kLaneGroups * kVecsOf8; ++v)
      add(phases.re.data() + j, phases.im.data() + j, j, v, whole);
  }
  for (size_t v = 0; v < kLaneGroups * kVecsOf8; ++v) {
    if (v >= last.vecs) break;
    if constexpr (kReadsOn) {
      add(last.re, last.im, last.begin, v, whole);
    } else {
      const auto left = static_cast<size_t>(columns - last.begin) - v * kDoublesPerVec;
      const size_t n = HWY_MIN(left, kDoublesPerVec);
      add(last.re, last.im, last.begin, v,
          [n](const uint8_t* q) { return Source::LoadFirst(q, n); });
    }
  }
  for (size_t r = 0; r < kRows; ++r)
    hn::StoreU(rows[r].Sum(), hn::FixedTag<double, 2>(), out + 2 * r);
}

// `count` rows of kColumns columns: fewer than eight, so that each has a lane of its own. The
// compiler makes vectors over rows of the loop.
template <int64_t kColumns>
HWY_NOINLINE void SumShortRows(const double* HWY_RESTRICT p, int64_t count,
                               double* HWY_RESTRICT out) {
  double c[8] = {}, s[8] = {};
  for (size_t j = 0; j < kColumns; ++j) {
    c[j] = ColumnPhases().re[j];
    s[j] = ColumnPhases().im[j];
  }
  for (int64_t i = 0; i < count; ++i) {
    const double* x = p + i * kColumns;
    const auto tree = [&](const double* phase) {  // AddTree
      const auto product = [&](int64_t j) { return x[j] * phase[j]; };
      const auto pair = [&](int64_t j) {
        return j + 1 < kColumns ? product(j) + product(j + 1) : product(j);
      };
      double even = pair(0), odd = kColumns > 2 ? pair(2) : 0.0;
      if (kColumns > 4) even += pair(4);
      if (kColumns > 6) odd += pair(6);
      return kColumns > 2 ? even + odd : even;
    };
    out[2 * i] = tree(c);
    out[2 * i + 1] = tree(s);
  }
}

// `count` rows of several columns, kTogether at a time, of the `n` values at `p`.
template <class Source, size_t kTogether, size_t kLaneGroups>
HWY_INLINE void SumWideRows(const uint8_t* p, int64_t n, int64_t columns, int64_t count,
                            double* out) {
  const LastPhases<double> last(ColumnPhases(), columns, 8 * kLaneGroups);
  const auto reads_on = [&](int64_t rows) {
    return (rows - 1) * columns + last.columns_read() <= n;
  };
  while (count > 0) {
    int64_t rows = 1;
    if (count >= static_cast<int64_t>(kTogether) && reads_on(kTogether)) {
      rows = kTogether;
      SumRows<Source, kTogether, kLaneGroups, true>(p, columns, last, out);
    } else if (reads_on(1)) {
      SumRows<Source, 1, kLaneGroups, true>(p, columns, last, out);
    } else {
      SumRows<Source, 1, kLaneGroups, false>(p, columns, last, out);
    }
    count -= rows;
    p += rows * columns * Source::kBytes;
    n -= rows * columns;
    out += 2 * rows;
  }
}

// `count` rows, of the `n` values at `p`.
template <class Source>
HWY_NOINLINE void SumAllRows(const uint8_t* p, int64_t n, int64_t columns, int64_t count,
                             double* out) {
  if (columns == 1) {
    constexpr auto kStep = static_cast<int64_t>(kDoublesPerVec);
    for (int64_t i = 0; i < count; i += kStep, p += kStep * Source::kBytes) {
      const auto left = static_cast<size_t>(HWY_MIN(kStep, count - i));
      const auto x = left == kDoublesPerVec ? Source::Load(p) : Source::LoadFirst(p, left);
      double values[kDoublesPerVec];
      hn::StoreU(x, DoubleTag(), values);
      for (size_t k = 0; k < left; ++k) {
        *out++ = values[k];
        *out++ = 0;
      }
    }
    return;
  }
  if constexpr (Source::kDecoded) {
    const auto* values = reinterpret_cast<const double*>(p);
    switch (columns) {
      case 2:
        return SumShortRows<2>(values, count, out);
      case 3:
        return SumShortRows<3>(values, count, out);
      case 4:
        return SumShortRows<4>(values, count, out);
      case 5:
        return SumShortRows<5>(values, count, out);
      case 6:
        return SumShortRows<6>(values, count, out);
      case 7:
        return SumShortRows<7>(values, count, out);
      default:
        break;
    }
  }
  constexpr size_t kVecsOfRow = 2 * kVecsOf8;
  constexpr size_t kNarrow = kVecsOfRow >= 8 ? 1 : 8 / kVecsOfRow;  // eight sums at once
  constexpr size_t kWide = kNarrow == 1 ? 1 : kNarrow / 2;
  LanesOf(columns) == 8 ? SumWideRows<Source, kNarrow, 1>(p, n, columns, count, out)
                        : SumWideRows<Source, kWide, 2>(p, n, columns, count, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET != HWY_SCALAR
#endif  // include guard
