#include "engine/kernels/diff_histogram.h"

#include <string>

#include "engine/kernels/chunks.h"
#include "engine/kernels/diff_histogram_scalar.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/diff_histogram.cc"
#include <hwy/foreach_target.h>  // compiles this file once for each target
#include <hwy/highway.h>

#include "engine/kernels/decode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void ChunkDifferences(const ChunkPair& c, int64_t first, DiffHistogram* h) {
  ChunkDifferencesScalar(c, first, h);
}

#else

// Real dtypes are decoded as a whole; equal elements, most of many tensors, need no more.
void ChunkDifferences(const ChunkPair& c, int64_t first, DiffHistogram* h) {
  const PairKind kind = PairKindOf(c.t, c.g);
  if (kind == PairKind::kInteger || kind == PairKind::kComplex)
    return ChunkDifferencesScalar(c, first, h);
  alignas(64) double t[kChunkElements], g[kChunkElements];
  DecodeDoubles(c.t, c.tp, c.n / ValuesPerElement(c.t), t);
  DecodeDoubles(c.g, c.gp, c.n / ValuesPerElement(c.g), g);
  int64_t same = 0;
  for (int64_t i = 0; i < c.n; ++i) same += t[i] == g[i];
  if (same == c.n) {
    h->count += c.n;
    h->equal += c.n;
    return;
  }
  for (int64_t i = 0; i < c.n; ++i) AddPair(Pair{t[i], 0, g[i], 0}, kind, first + i, h);
}

#endif  // HWY_TARGET == HWY_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msprobe::kernels {

HWY_EXPORT(ChunkDifferences);

Result<DiffHistogram> CountDifferences(const TensorView& target, const TensorView& golden,
                                       ThreadPool* pool) {
  const int64_t count = target.numel() * ValuesPerElement(target.dtype);
  const int64_t golden_count = golden.numel() * ValuesPerElement(golden.dtype);
  if (count != golden_count) {
    return InvalidArgument("cannot count the differences of tensors of different size"_t)
        .Expected("{} elements in the golden, as in the target of shape {}"_t(
            count, ShapeText(target.dims())))
        .Found("{} of shape {}"_t(golden_count, ShapeText(golden.dims())));
  }
  if (count == 0) return DiffHistogram();
  const FloatEnvironment environment;
  const ChunkPairReader reader(target, golden);
  return FoldChunks<DiffHistogramNode, ChunkPairReader::Windows>(
      count, pool, [&](int64_t first, int64_t n, int64_t, ChunkPairReader::Windows& windows) {
        DiffHistogramNode node;
        HWY_DYNAMIC_DISPATCH(ChunkDifferences)(reader.Read(first, n, &windows), first, &node);
        return node;
      });
}

}  // namespace msprobe::kernels
#endif  // HWY_ONCE
