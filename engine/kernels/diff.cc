#include "engine/kernels/diff.h"

#include "engine/kernels/checksum_parts.h"
#include "engine/kernels/chunk_pair.h"
#include "engine/kernels/chunks.h"
#include "engine/kernels/diff_find.h"
#include "engine/kernels/diff_node.h"
#include "engine/kernels/diff_pairs.h"
#include "engine/kernels/diff_scalar.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/diff.cc"
#include <hwy/foreach_target.h>  // compiles this file once for each target
#include <hwy/highway.h>

#include "engine/kernels/decode-inl.h"
#include "engine/kernels/diff_scan-inl.h"
#include "engine/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void ChunkDiff(const ChunkPair& c, DiffNode* node) {
  *node = ChunkDiffScalar(c.t, c.tp, c.g, c.gp, c.n, 0);
}

#else

// Chunk buffers are padded with zeros to whole lanes.
HWY_INLINE void PadWithZeros(double* v, int64_t n) {
  for (int64_t i = n; i % static_cast<int64_t>(kLanes) != 0; ++i) v[i] = 0.0;
}

// The largest distance in representable numbers of `format` between floats or doubles, over
// elements where both sides are finite.
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

// The difference of two dtypes that fit float, computed from decoded copies.
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

#endif  // HWY_TARGET == HWY_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msprobe::kernels {
namespace {

HWY_EXPORT(ChunkDiff);

DiffNode DiffOfChunk(const ChunkPair& pair, int64_t chunk) {
  DiffNode node;
  HWY_DYNAMIC_DISPATCH(ChunkDiff)(pair, &node);
  node.SetChunk(chunk);
  return node;
}

}  // namespace

Result<Diff> ComputeDiff(const TensorView& target, const TensorView& golden, ThreadPool* pool) {
  return ComputeDiff(target, golden, pool, nullptr);
}

Result<Diff> ComputeDiff(const TensorView& target, const TensorView& golden, ThreadPool* pool,
                         Crc32Pair* checksums) {
  const int64_t count = target.numel() * ValuesPerElement(target.dtype);
  const int64_t golden_count = golden.numel() * ValuesPerElement(golden.dtype);
  if (count != golden_count) {
    return InvalidArgument("cannot compare tensors of different size"_t)
        .Expected("{} elements in the golden, as in the target of shape {}"_t(
            count, ShapeText(target.dims())))
        .Found("{} of shape {}"_t(golden_count, ShapeText(golden.dims())));
  }
  if (checksums != nullptr) *checksums = {};
  if (count == 0) return Diff();
  const FloatEnvironment environment;
  const ChunkPairReader reader(target, golden);
  const Checksum kind = checksums != nullptr ? Checksum::kCrc32 : Checksum::kNone;
  const int64_t groups = InParallel(count, pool) ? (count - 1) / kGroupElements + 1 : 1;
  const auto bytes = [](DType dtype, int64_t n) {
    return n / ValuesPerElement(dtype) * static_cast<int64_t>(DTypeSize(dtype));
  };
  ChecksumParts of_target(kind, groups), of_golden(kind, groups);
  const DiffNode node = FoldChunks<DiffNode, ChunkPairReader::Windows>(
      count, pool, [&](int64_t first, int64_t n, int64_t chunk, ChunkPairReader::Windows& windows) {
        const ChunkPair pair = reader.Read(first, n, &windows);
        of_target.Add(chunk, pair.tp, bytes(pair.t, n));
        of_golden.Add(chunk, pair.gp, bytes(pair.g, n));
        return DiffOfChunk(pair, chunk);
      });
  if (checksums != nullptr) {
    const auto sum = [&](const ChecksumParts& parts, DType dtype) {
      return static_cast<uint32_t>(parts.Finish(bytes(dtype, kGroupElements), bytes(dtype, count)));
    };
    *checksums = {sum(of_target, target.dtype), sum(of_golden, golden.dtype)};
  }
  Diff diff = FinishDiff(node, UlpKindOf(target.dtype, golden.dtype), count);
  if (node.unequal > 0)
    FindIndices(reader, node, PairKindOf(target.dtype, golden.dtype), count, &diff);
  return diff;
}

}  // namespace msprobe::kernels
#endif  // HWY_ONCE
