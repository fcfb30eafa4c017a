#include "engine/kernels/stats.h"

#include "engine/kernels/checksum_parts.h"
#include "engine/kernels/chunk_reader.h"
#include "engine/kernels/chunks.h"
#include "engine/kernels/stats_node.h"
#include "engine/kernels/stats_scalar.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/stats.cc"
#include <hwy/foreach_target.h>  // compiles this file once for each target
#include <hwy/highway.h>

#include "engine/kernels/decode-inl.h"
#include "engine/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void ChunkStats(DType dtype, const uint8_t* p, int64_t n, uint64_t chunk, StatsNode* node) {
  *node = ChunkStatsScalar(dtype, p, n, static_cast<int64_t>(chunk));
}

#else

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
  // of zeros.
  template <class Loader, bool kMasked>
  HWY_INLINE void Add(const uint8_t* p, size_t count) {
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
    }
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

// The same, fed with doubles.
struct DoubleAccumulator {
  DoubleVec sum[kDoubleVecs], squares[kDoubleVecs];
  DoubleVec max, min;
  LongVec zero;

  HWY_INLINE DoubleAccumulator() {
    for (size_t k = 0; k < kDoubleVecs; ++k) sum[k] = squares[k] = hn::Zero(DoubleTag());
    max = hn::Set(DoubleTag(), -std::numeric_limits<double>::infinity());
    min = hn::Set(DoubleTag(), std::numeric_limits<double>::infinity());
    zero = hn::Zero(LongTag());
  }

  template <class Loader, bool kMasked>
  HWY_INLINE void Add(const uint8_t* p, size_t count) {
    const LongTag dl;
    for (size_t k = 0; k < kDoubleVecs; ++k) {
      const DoubleVec v =
          hn::LoadU(DoubleTag(), reinterpret_cast<const double*>(p) + k * kDoublesPerVec);
      auto is_zero = hn::Eq(v, hn::Zero(DoubleTag()));
      if constexpr (kMasked) {
        const size_t before = k * kDoublesPerVec;
        const auto real = hn::FirstN(DoubleTag(), count > before ? count - before : 0);
        max = hn::IfThenElse(real, hn::Max(max, v), max);
        min = hn::IfThenElse(real, hn::Min(min, v), min);
        is_zero = hn::And(is_zero, real);
      } else {
        max = hn::Max(max, v);
        min = hn::Min(min, v);
      }
      zero = hn::Sub(zero, hn::VecFromMask(dl, hn::RebindMask(dl, is_zero)));
      sum[k] = hn::Add(sum[k], v);
      squares[k] = hn::Add(squares[k], hn::Mul(v, v));  // not exact: never fused
    }
  }

  HWY_INLINE void Finish(StatsNode* node) {
    node->sum = AddLanes(sum);
    node->sum_squares = AddLanes(squares);
    node->max = hn::GetLane(hn::MaxOfLanes(DoubleTag(), max));
    node->min = hn::GetLane(hn::MinOfLanes(DoubleTag(), min));
    node->zero = hn::GetLane(hn::SumOfLanes(LongTag(), zero));
  }
};

struct LoadFloat64 {
  static constexpr size_t kBytes = 8;
};

// One pass over the `n` elements at `p`; with kHash their fingerprint too.
template <class Accumulator, class Loader, bool kHash>
HWY_INLINE void Scan(const uint8_t* p, size_t n, uint64_t chunk, StatsNode* node) {
  constexpr size_t kStep =
      Loader::kBytes * kLanes < kStripeBytes ? kStripeBytes / Loader::kBytes : kLanes;
  constexpr size_t kStepBytes = kStep * Loader::kBytes;
  Accumulator accumulator;
  Hasher<kHash> hasher;
  const uint64_t bytes = n * Loader::kBytes;
  for (; n >= kStep; n -= kStep, p += kStepBytes) {
    for (size_t b = 0; b < kStepBytes; b += kStripeBytes) PrefetchAhead(p + b);
    for (size_t b = 0; b < kStepBytes; b += kStripeBytes) hasher.Stripe(p + b);
    for (size_t i = 0; i < kStep; i += kLanes) {
      accumulator.template Add<Loader, false>(p + i * Loader::kBytes, kLanes);
    }
  }
  // The elements after the last whole step are copied into a step of zeros, because a vector load
  // at `p` would read memory after the tensor. Example: of 19 floats 16 are one step; the other 3
  // and 13 zeros are the last step, added with count = 3.
  if (n > 0) {
    alignas(64) uint8_t tail[kStepBytes] = {};
    std::memcpy(tail, p, n * Loader::kBytes);
    for (size_t b = 0; b < n * Loader::kBytes; b += kStripeBytes) hasher.Stripe(tail + b);
    for (size_t i = 0; i < n; i += kLanes) {
      accumulator.template Add<Loader, true>(tail + i * Loader::kBytes, n - i);
    }
  }
  accumulator.Finish(node);
  if constexpr (kHash) node->hash = hasher.Finish(chunk, bytes);
}

HWY_NOINLINE uint64_t HashBytes(const uint8_t* p, size_t n, uint64_t chunk) {
  Hasher<true> hasher;
  const uint64_t bytes = n;
  for (; n >= kStripeBytes; n -= kStripeBytes, p += kStripeBytes) hasher.Stripe(p);
  if (n > 0) {
    alignas(64) uint8_t tail[kStripeBytes] = {};
    std::memcpy(tail, p, n);
    hasher.Stripe(tail);
  }
  return hasher.Finish(chunk, bytes);
}

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
HWY_NOINLINE void RecountFloats(DType dtype, const uint8_t* p, int64_t n, StatsNode* node) {
  alignas(64) float values[2 * kChunkElements];
  DecodeFloats(dtype, p, n, values);
  CountSpecials(values, n * ValuesPerElement(dtype), node);
}
HWY_NOINLINE void RecountDoubles(const uint8_t* p, int64_t n, StatsNode* node) {
  alignas(64) double values[kChunkElements];
  std::memcpy(values, p, static_cast<size_t>(n) * sizeof(double));
  CountSpecials(values, n, node);
}

HWY_NOINLINE void ScanDecodedFloats(DType dtype, const uint8_t* p, int64_t n, uint64_t chunk,
                                    StatsNode* node) {
  alignas(64) float values[2 * kChunkElements];
  DecodeFloats(dtype, p, n, values);
  n *= ValuesPerElement(dtype);
  Scan<FloatAccumulator, LoadFloat32, false>(reinterpret_cast<const uint8_t*>(values), n, chunk,
                                             node);
  if (MayHoldSpecials(*node)) CountSpecials(values, n, node);
}

HWY_NOINLINE void ScanDecodedDoubles(DType dtype, const uint8_t* p, int64_t n, uint64_t chunk,
                                     StatsNode* node) {
  alignas(64) double values[kChunkElements];
  if (DTypeKindOf(dtype) == DTypeKind::kComplex) {
    alignas(64) double re[kChunkElements], im[kChunkElements];
    DecodeComplex(dtype, p, n, re, im);
    Moduli(re, im, n, values);
  } else {
    DecodeDoubles(dtype, p, n, values);
  }
  Scan<DoubleAccumulator, LoadFloat64, false>(reinterpret_cast<const uint8_t*>(values), n, chunk,
                                              node);
  if (MayHoldSpecials(*node)) CountSpecials(values, n, node);
  if (IsWideInteger(dtype)) {
    const uint64_t flip = dtype == DType::kUInt64 ? kTopBit : 0;
    int64_t max = std::numeric_limits<int64_t>::min(), min = std::numeric_limits<int64_t>::max();
    for (int64_t i = 0; i < n; ++i) {
      const int64_t v = static_cast<int64_t>(LoadElement<uint64_t>(p, i) ^ flip);
      max = v > max ? v : max;
      min = v < min ? v : min;
    }
    node->int_max = max;
    node->int_min = min;
  }
}

// The common dtypes are read in one fused pass; of the others a decoded copy of the chunk is made.
void ChunkStats(DType dtype, const uint8_t* p, int64_t n, uint64_t chunk, StatsNode* node) {
  const size_t count = static_cast<size_t>(n);
  switch (dtype) {
    case DType::kFloat32:
      Scan<FloatAccumulator, LoadFloat32, true>(p, count, chunk, node);
      break;
    case DType::kBFloat16:
      Scan<FloatAccumulator, LoadBFloat16, true>(p, count, chunk, node);
      break;
    case DType::kFloat16:
      Scan<FloatAccumulator, LoadFloat16, true>(p, count, chunk, node);
      break;
    case DType::kFloat64:
      Scan<DoubleAccumulator, LoadFloat64, true>(p, count, chunk, node);
      if (MayHoldSpecials(*node)) RecountDoubles(p, n, node);
      return;
    default:
      if (FitsFloat(dtype)) {
        ScanDecodedFloats(dtype, p, n, chunk, node);
      } else {
        ScanDecodedDoubles(dtype, p, n, chunk, node);
      }
      node->hash = HashBytes(p, count * DTypeSize(dtype), chunk);
      return;
  }
  if (MayHoldSpecials(*node)) RecountFloats(dtype, p, n, node);
}

#endif  // HWY_TARGET == HWY_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msprobe::kernels {
namespace {

HWY_EXPORT(ChunkStats);

StatsNode StatsOfChunk(DType dtype, const uint8_t* p, int64_t n, int64_t chunk) {
  StatsNode node;
  HWY_DYNAMIC_DISPATCH(ChunkStats)(dtype, p, n, static_cast<uint64_t>(chunk), &node);
  return node;
}

// A function of its own, so that small contiguous tensors need neither the buffer nor the memory for
// runs.
[[gnu::noinline]] StatsNode StatsOfStrided(const TensorView& view, int64_t numel, ThreadPool* pool,
                                           ChecksumParts* checksum) {
  const ChunkReader reader(view);
  const int64_t size = static_cast<int64_t>(DTypeSize(view.dtype));
  using Window = ChunkReader::Window;
  return FoldChunks<StatsNode, Window>(
      numel, pool, [&](int64_t first, int64_t n, int64_t chunk, Window& window) {
        const uint8_t* p = reader.Read(first, n, &window);
        checksum->Add(chunk, p, n * size);
        return StatsOfChunk(view.dtype, p, n, chunk);
      });
}

}  // namespace

Stats ComputeStats(const TensorView& view, ThreadPool* pool, Checksum checksum) {
  const int64_t numel = view.numel();
  if (numel == 0) return EmptyStats(view.dtype);
  const FloatEnvironment environment;
  const int64_t size = static_cast<int64_t>(DTypeSize(view.dtype));
  ChecksumParts parts(checksum,
                      InParallel(numel, pool) ? (numel + kGroupElements - 1) / kGroupElements : 1);
  StatsNode node;
  if (!view.IsContiguous()) {
    node = StatsOfStrided(view, numel, pool, &parts);
  } else {
    const uint8_t* data = static_cast<const uint8_t*>(view.data);
    node = FoldChunks<StatsNode, NoScratch>(
        numel, pool, [&](int64_t first, int64_t n, int64_t chunk, NoScratch&) {
          const StatsNode of_chunk = StatsOfChunk(view.dtype, data + first * size, n, chunk);
          parts.Add(chunk, data + first * size, n * size);
          return of_chunk;
        });
  }
  Stats stats = FinishStats(node, view.dtype, numel);
  stats.checksum = parts.Finish(kGroupElements * size, numel * size);
  return stats;
}

}  // namespace msprobe::kernels
#endif  // HWY_ONCE
