#include "engine/kernels/stats.h"

#include "engine/kernels/checksum_parts.h"
#include "engine/kernels/chunk_reader.h"
#include "engine/kernels/chunks.h"
#include "engine/kernels/rest_stats_scalar.h"
#include "engine/kernels/sketch_scalar.h"
#include "engine/kernels/sketch_scan.h"
#include "engine/kernels/stats_node.h"
#include "engine/kernels/stats_scalar.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/stats.cc"
#include <hwy/foreach_target.h>  // compiles this file once for each target
#include <hwy/highway.h>

#include "engine/kernels/decode-inl.h"
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/stats_accumulator-inl.h"

HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void ChunkStats(DType dtype, const uint8_t* p, int64_t n, uint64_t chunk, StatsNode* node) {
  *node = ChunkStatsScalar(dtype, p, n, static_cast<int64_t>(chunk));
}

#else

// FloatAccumulator's twin, fed with doubles.
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
  constexpr auto kStep = static_cast<size_t>(StatsStep<Loader>());
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

// A function of its own, so that small contiguous tensors need neither the buffer nor the memory
// for runs.
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

struct SketchedNode {
  StatsNode stats;
  SketchNode sketch;
  static SketchedNode Combine(const SketchedNode& a, const SketchedNode& b) {
    return {StatsNode::Combine(a.stats, b.stats), SketchNode::Combine(a.sketch, b.sketch)};
  }
};

// Whether a part of a tensor has extremes (rest_stats.h) or NaN.
bool HoldsExtremes(DType dtype, const StatsNode& node) {
  return DTypeKindOf(dtype) == DTypeKind::kFloat &&
         !(node.max < kExtreme && node.min > -kExtreme && node.nan == 0);
}

// The statistics of a chunk, and the sketch of its elements.
void AddChunk(DType dtype, const uint8_t* p, int64_t n, int64_t chunk, StatsNode* stats,
              SketchScan* scan) {
  if (!scan->node.given_up && scan->AddWithStats(dtype, p, n, chunk, stats)) {
    scan->node.given_up = HoldsExtremes(dtype, *stats);
    return;
  }
  *stats = StatsOfChunk(dtype, p, n, chunk);
  if (HoldsExtremes(dtype, *stats)) scan->node.given_up = true;
  if (scan->node.given_up) return;
  const bool finite = stats->nan + stats->pos_inf + stats->neg_inf == 0;
  scan->Add(dtype, p, n, SketchOf::kFinite, finite);  // the chunk is in the L1 cache
}

// The same with the sketch.
[[gnu::noinline]] StatsNode SketchedStats(const TensorView& view, int64_t numel, ThreadPool* pool,
                                          ChecksumParts* checksum, std::optional<Sketch>* sketch) {
  const ChunkReader reader(view);
  const SketchLayout layout(view.dtype, view.dims());
  const int64_t size = static_cast<int64_t>(DTypeSize(view.dtype)),
                values = SketchValues(view.dtype);
  struct Scratch {
    ChunkReader::Window window;
    SketchScan scan;
  };
  const auto read = [&](int64_t first, int64_t n, int64_t chunk, Scratch& scratch,
                        StatsNode* stats) {
    const uint8_t* p = reader.Read(first, n, &scratch.window);
    checksum->Add(chunk, p, n * size);
    if (first % kGroupElements == 0) scratch.scan.Begin(layout, first * values);
    AddChunk(view.dtype, p, n, chunk, stats, &scratch.scan);
  };
  const auto finish = [&](const SketchNode& node) {
    if (!node.given_up) *sketch = FinishSketch(node);
  };
  if (numel <= kChunkElements) {  // most tensors
    Scratch scratch;
    StatsNode stats;
    read(0, numel, 0, scratch, &stats);
    finish(scratch.scan.Finish());
    return stats;
  }
  const SketchedNode node =
      FoldGroups<SketchedNode, Scratch>(numel, pool, [&](int64_t group, Scratch& scratch) {
        const StatsNode stats =
            FoldGroup<StatsNode>(numel, group, [&](int64_t first, int64_t n, int64_t chunk) {
              StatsNode of_chunk;
              read(first, n, chunk, scratch, &of_chunk);
              return of_chunk;
            });
        return SketchedNode{stats, scratch.scan.Finish()};
      });
  finish(node.sketch);
  return node.stats;
}

}  // namespace

Stats ComputeStats(const TensorView& view, ThreadPool* pool, Checksum checksum,
                   std::optional<Sketch>* sketch) {
  const int64_t numel = view.numel();
  if (sketch != nullptr) sketch->reset();
  if (numel == 0) return EmptyStats(view.dtype);
  const FloatEnvironment environment;
  const int64_t size = static_cast<int64_t>(DTypeSize(view.dtype));
  ChecksumParts parts(checksum,
                      InParallel(numel, pool) ? (numel + kGroupElements - 1) / kGroupElements : 1);
  StatsNode node;
  if (sketch != nullptr) {
    node = SketchedStats(view, numel, pool, &parts, sketch);
  } else if (!view.IsContiguous()) {
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
