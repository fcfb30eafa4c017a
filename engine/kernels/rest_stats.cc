#include "engine/kernels/rest_stats.h"

#include <cmath>

#include "engine/kernels/chunk_reader.h"
#include "engine/kernels/chunks.h"
#include "engine/kernels/rest_stats_scalar.h"
#include "engine/tensor/float_formats.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/rest_stats.cc"
#include <hwy/foreach_target.h>  // compiles this file once for each target
#include <hwy/highway.h>

#include "engine/kernels/decode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {

RestNode RestOfChunk(DType dtype, const uint8_t* p, int64_t n) {
  alignas(64) double values[kChunkElements];
#if HWY_TARGET == HWY_SCALAR
  const int64_t size = static_cast<int64_t>(DTypeSize(dtype));
  for (int64_t i = 0; i < n; ++i) values[i] = ElementToDouble(dtype, p + i * size);
  return RestOfChunkScalar(values, n);
#else
  DecodeDoubles(dtype, p, n, values);
  // Plain loops without branches over eight lanes, which the compiler makes vectors of. A chunk
  // that does not end with a lane is filled up with extremes, which are taken away from the count
  // again.
  constexpr int64_t kLanes = 8;
  const int64_t filled = (n + kLanes - 1) / kLanes * kLanes;
  for (int64_t i = n; i < filled; ++i) values[i] = kExtreme;
  std::array<double, 8> squares{};
  double most[kLanes], least[kLanes];
  int64_t rest[kLanes] = {}, extremes[kLanes] = {};
  for (int64_t k = 0; k < kLanes; ++k) most[k] = -INFINITY, least[k] = INFINITY;
  for (int64_t i = 0; i < filled; i += kLanes) {
    for (int64_t k = 0; k < kLanes; ++k) {
      const double value = values[i + k], size = std::abs(value);
      const bool is_rest = size < kRestBelow;
      rest[k] += is_rest;
      extremes[k] += size >= kExtreme;
      const double high = is_rest ? value : -INFINITY, low = is_rest ? value : INFINITY;
      const double square = is_rest ? value * value : 0.0;
      most[k] = high > most[k] ? high : most[k];
      least[k] = low < least[k] ? low : least[k];
      squares[static_cast<size_t>(k)] += square;
    }
  }
  RestNode node;
  for (int64_t k = 0; k < kLanes; ++k) {
    node.rest += rest[k];
    node.extremes += extremes[k];
    node.max = std::max(node.max, most[k]);
    node.min = std::min(node.min, least[k]);
  }
  node.extremes -= filled - n;
  node.between = n - node.rest - node.extremes;
  node.squares = SumOfLanes(squares);
  return node;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msprobe::kernels {

HWY_EXPORT(RestOfChunk);

std::optional<RestStats> ComputeRestStats(const TensorView& view, const Stats& all,
                                          ThreadPool* pool) {
  if (DTypeKindOf(view.dtype) != DTypeKind::kFloat || view.dtype == DType::kFloat4E2M1X2 ||
      all.nan > 0 || all.count == 0 ||
      (std::abs(all.max) < kExtreme && std::abs(all.min) < kExtreme))
    return std::nullopt;
  const ChunkReader reader(view);
  const RestNode node = FoldChunks<RestNode, ChunkReader::Window>(
      view.numel(), pool,
      [&](int64_t first, int64_t n, int64_t /*chunk*/, ChunkReader::Window& window) {
        return HWY_DYNAMIC_DISPATCH(RestOfChunk)(view.dtype, reader.Read(first, n, &window), n);
      });
  if (node.rest == 0 || node.extremes == 0 || node.between > 0) return std::nullopt;
  // Which of two zeros came first depends on the lanes; + 0.0 makes one of both.
  return RestStats{node.extremes, node.max + 0.0, node.min + 0.0, std::sqrt(node.squares)};
}

}  // namespace msprobe::kernels
#endif  // HWY_ONCE
