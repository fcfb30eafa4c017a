// The sums of the columns of rows of floats, as many rows at a time as a vector has floats (a
// batch). Where rows are short, adding up the lanes of each row alone costs more than all else.
#if defined(ENGINE_KERNELS_SKETCH_SHORT_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENGINE_KERNELS_SKETCH_SHORT_ROWS_INL_H_
#undef ENGINE_KERNELS_SKETCH_SHORT_ROWS_INL_H_
#else
#define ENGINE_KERNELS_SKETCH_SHORT_ROWS_INL_H_
#endif

#include <algorithm>

#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/phase.h"
#include "engine/kernels/sketch_floats-inl.h"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {

// Rows of a batch, and how many rows share a vector that has a block of four floats for each.
inline constexpr int64_t kBatchRows = static_cast<int64_t>(kFloatsPerVec);
inline constexpr size_t kBlocks = kFloatsPerVec / 4;

// The lanes of kBlocks rows, each added up to four lanes in AddTree's order (sketch_node.h): a
// block for each row.
HWY_INLINE FloatVec AddToFour(const FloatVec (&rows)[kBlocks]) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  const FloatTag f;
  const auto halves = [&](FloatVec a, FloatVec b) {  // of a and of b: lane j + lane j + 8
    return hn::Add(hn::ConcatLowerLower(f, b, a), hn::ConcatUpperUpper(f, b, a));
  };
  const FloatVec x = halves(rows[0], rows[1]), y = halves(rows[2], rows[3]);
  return hn::Add(FloatVec{_mm512_shuffle_f32x4(x.raw, y.raw, 0x88)},
                 FloatVec{_mm512_shuffle_f32x4(x.raw, y.raw, 0xdd)});
#elif HWY_TARGET == HWY_AVX2
  const FloatTag f;
  return hn::Add(hn::ConcatLowerLower(f, rows[1], rows[0]),
                 hn::ConcatUpperUpper(f, rows[1], rows[0]));
#else
  static_assert(kBlocks == 1);
  return rows[0];
#endif
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

// The sixteen lanes of a row, added up to as many as a vector has.
HWY_INLINE FloatVec AddVecs(const FloatVec (&lanes)[kFloatVecs]) {
  FloatVec sums[kFloatVecs];
  std::copy_n(lanes, kFloatVecs, sums);
  for (size_t n = kFloatVecs / 2; n > 0; n /= 2) {
    for (size_t k = 0; k < n; ++k) sums[k] = hn::Add(sums[k], sums[k + n]);
  }
  return sums[0];
}

// AddTree of the lanes of a batch of rows, which stand in memory one row after the other.
HWY_INLINE void AddFloatLanes(const float* lanes, float* out) {
  const FloatTag f;
  const auto four = [&](size_t q) {
    FloatVec rows[kBlocks];
    for (size_t b = 0; b < kBlocks; ++b) {
      FloatVec row[kFloatVecs];
      for (size_t k = 0; k < kFloatVecs; ++k)
        row[k] = hn::LoadU(f, lanes + (q + 4 * b) * kLanes + k * kFloatsPerVec);
      rows[b] = AddVecs(row);
    }
    return AddToFour(rows);
  };
  hn::StoreU(AddBlocks(four(0), four(1), four(2), four(3)), f, out);
}

// The sums of a batch of rows of finite elements. kOneStep: at most sixteen columns.
template <class Loader, bool kOneStep>
HWY_INLINE void SumBatch(const uint8_t* p, int64_t columns, const LastPhases<float>& last,
                         float* re, float* im) {
  const FloatTag f;
  const FloatPhases& phases = ColumnFloatPhases();
  constexpr auto kBytes = static_cast<int64_t>(Loader::kBytes);
  constexpr auto kStep = static_cast<int64_t>(kLanes);
  const int64_t row_bytes = columns * kBytes;
  FloatVec four_re[4], four_im[4];
  for (int64_t q = 0; q < 4; ++q, p += row_bytes) {
    FloatLanes rows[kBlocks];
    const auto add = [&](const float* from_re, const float* from_im, int64_t column, size_t vecs,
                         auto is_first) {
      for (size_t k = 0; k < kFloatVecs; ++k) {
        if (k >= vecs) break;
        const auto c = hn::LoadU(f, from_re + k * kFloatsPerVec);
        const auto s = hn::LoadU(f, from_im + k * kFloatsPerVec);
        const uint8_t* at = p + (column + static_cast<int64_t>(k * kFloatsPerVec)) * kBytes;
        for (size_t b = 0; b < kBlocks; ++b, at += 4 * row_bytes) {
          const FloatVec x = Loader::Load(at);
          FloatLanes& row = rows[b];
          row.re[k] = is_first ? hn::Mul(x, c) : FusedMulAdd(x, c, row.re[k]);
          row.im[k] = is_first ? hn::Mul(x, s) : FusedMulAdd(x, s, row.im[k]);
        }
      }
    };
    // The first product alone is what a fused multiply-add to 0 gives, but for the sign of a zero,
    // which no sum shows.
    if constexpr (kOneStep) {
      for (size_t b = 0; b < kBlocks; ++b) rows[b].Clear();
      add(last.re, last.im, 0, last.vecs, std::true_type());
    } else {
      add(phases.re.data(), phases.im.data(), 0, kFloatVecs, std::true_type());
      for (int64_t j = kStep; j < last.begin; j += kStep)
        add(phases.re.data() + j, phases.im.data() + j, j, kFloatVecs, std::false_type());
      add(last.re, last.im, last.begin, last.vecs, std::false_type());
    }
    FloatVec sums_re[kBlocks], sums_im[kBlocks];
    for (size_t b = 0; b < kBlocks; ++b) {
      sums_re[b] = AddVecs(rows[b].re);
      sums_im[b] = AddVecs(rows[b].im);
    }
    four_re[q] = AddToFour(sums_re);
    four_im[q] = AddToFour(sums_im);
  }
  hn::StoreU(AddBlocks(four_re[0], four_re[1], four_re[2], four_re[3]), f, re);
  hn::StoreU(AddBlocks(four_im[0], four_im[1], four_im[2], four_im[3]), f, im);
}

// `batches` batches of rows, one after the other.
template <class Loader>
HWY_NOINLINE void SumBatches(const uint8_t* p, int64_t columns, const LastPhases<float>& last,
                             int64_t batches, float* re, float* im) {
  const int64_t bytes = kBatchRows * columns * static_cast<int64_t>(Loader::kBytes);
  for (; batches > 0; --batches, p += bytes, re += kBatchRows, im += kBatchRows) {
    last.begin == 0 ? SumBatch<Loader, true>(p, columns, last, re, im)
                    : SumBatch<Loader, false>(p, columns, last, re, im);
  }
}

// Rows that are so short that their columns are made vectors, one element of each row of a batch.
inline constexpr int64_t kShortRow = 8;

// The sums of a batch of rows of kColumns columns, at most kShortRow.
template <int64_t kColumns>
HWY_INLINE void SumShortBatch(const float* p, const FloatVec (&c)[kColumns],
                              const FloatVec (&s)[kColumns], float* re, float* im) {
  const FloatTag f;
  const DoubleTag g;
  const hn::CappedTag<float, 4> block;
  FloatVec x[(kColumns + 3) / 4 * 4];
  for (int64_t j = 0; j < kColumns; j += 4) {
    FloatVec rows[4];  // rows q, q + 4, ...: a block of four columns each
    for (int64_t q = 0; q < 4; ++q) {
      const auto load = [&](int64_t b) { return hn::LoadU(block, p + (q + 4 * b) * kColumns + j); };
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
      const hn::Half<FloatTag> half;
      rows[q] =
          hn::Combine(f, hn::Combine(half, load(3), load(2)), hn::Combine(half, load(1), load(0)));
#elif HWY_TARGET == HWY_AVX2
      rows[q] = hn::Combine(f, load(1), load(0));
#else
      rows[q] = load(0);
#endif
    }
    const auto transpose = [&](FloatVec a, FloatVec b, FloatVec d, FloatVec e, FloatVec* to) {
      const auto low = hn::BitCast(g, hn::InterleaveLower(f, a, b));
      const auto high = hn::BitCast(g, hn::InterleaveLower(f, d, e));
      to[0] = hn::BitCast(f, hn::InterleaveLower(g, low, high));
      to[1] = hn::BitCast(f, hn::InterleaveUpper(g, low, high));
      if (j + 2 >= kColumns) return;
      const auto low2 = hn::BitCast(g, hn::InterleaveUpper(f, a, b));
      const auto high2 = hn::BitCast(g, hn::InterleaveUpper(f, d, e));
      to[2] = hn::BitCast(f, hn::InterleaveLower(g, low2, high2));
      to[3] = hn::BitCast(f, hn::InterleaveUpper(g, low2, high2));
    };
    transpose(rows[0], rows[1], rows[2], rows[3], x + j);
  }
  const auto tree = [&](const FloatVec(&phase)[kColumns]) {  // AddTree
    const auto four = [&](int64_t j) {
      const auto product = hn::Mul(x[j], phase[j]);
      return j + 4 < kColumns ? hn::Add(product, hn::Mul(x[j + 4], phase[j + 4])) : product;
    };
    const auto even = kColumns > 2 ? hn::Add(four(0), four(2)) : four(0);
    return hn::Add(even, kColumns > 3 ? hn::Add(four(1), four(3)) : four(1));
  };
  hn::StoreU(tree(c), f, re);
  hn::StoreU(tree(s), f, im);
}

// `count` rows of kColumns columns; writes whole batches. `readable`: floats at `p`.
template <int64_t kColumns>
HWY_NOINLINE void SumShortRows(const float* p, int64_t readable, int64_t count, float* re,
                               float* im) {
  const FloatPhases& phases = ColumnFloatPhases();
  FloatVec c[kColumns], s[kColumns];
  for (size_t j = 0; j < kColumns; ++j) {
    c[j] = hn::Set(FloatTag(), phases.re[j]);
    s[j] = hn::Set(FloatTag(), phases.im[j]);
  }
  constexpr int64_t kBatch = kBatchRows * kColumns;
  constexpr int64_t kRead = kBatch + (kColumns + 3) / 4 * 4 - kColumns;
  for (; count > 0; count -= kBatchRows, re += kBatchRows, im += kBatchRows) {
    if (readable >= kRead) {
      SumShortBatch<kColumns>(p, c, s, re, im);
    } else {
      alignas(64) float some[kRead] = {};
      std::copy_n(p, readable, some);
      SumShortBatch<kColumns>(some, c, s, re, im);
    }
    p += kBatch;
    readable -= kBatch;
  }
}

HWY_INLINE void SumShortRows(const float* p, int64_t readable, int64_t columns, int64_t count,
                             float* re, float* im) {
  switch (columns) {
    case 2:
      return SumShortRows<2>(p, readable, count, re, im);
    case 3:
      return SumShortRows<3>(p, readable, count, re, im);
    case 4:
      return SumShortRows<4>(p, readable, count, re, im);
    case 5:
      return SumShortRows<5>(p, readable, count, re, im);
    case 6:
      return SumShortRows<6>(p, readable, count, re, im);
    case 7:
      return SumShortRows<7>(p, readable, count, re, im);
    default:
      return SumShortRows<8>(p, readable, count, re, im);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET != HWY_SCALAR
#endif  // include guard
