#include "engine/kernels/distribution.h"

#include "engine/kernels/chunk_reader.h"
#include "engine/kernels/chunks.h"
#include "engine/kernels/distribution_scalar.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/distribution.cc"
#include <hwy/foreach_target.h>  // compiles this file once for each target
#include <hwy/highway.h>

#include "engine/kernels/decode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {

// Adds the chunk's elements to the counts.
void ChunkIntervals(DType dtype, const uint8_t* p, int64_t n, const double* bounds, size_t size,
                    int64_t* counts, uint8_t* positive) {
#if HWY_TARGET == HWY_SCALAR
  ChunkIntervalsScalar(dtype, p, n, {bounds, size}, counts, positive);
#else
  alignas(64) double values[kChunkElements];
  DecodeDoubles(dtype, p, n, values);
  int64_t numbers = 0, below = 0;
  for (int64_t i = 0; i < n; ++i) numbers += values[i] == values[i];
  for (size_t k = 0; k < size; ++k) {
    const double bound = bounds[k];
    int64_t at_most = 0;
    for (int64_t i = 0; i < n; ++i) at_most += values[i] <= bound;
    counts[k] += at_most - below;
    below = at_most;
  }
  counts[size] += numbers - below;
  if (positive == nullptr) return;
  for (int64_t i = 0; i < n; ++i) positive[i] = values[i] > 0;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msprobe::kernels {

HWY_EXPORT(ChunkIntervals);

bool HasOrder(DType dtype) {
  return DTypeKindOf(dtype) != DTypeKind::kComplex && dtype != DType::kFloat4E2M1X2;
}

std::vector<int64_t> CountIntervals(const TensorView& view, std::span<const double> bounds,
                                    uint8_t* positive, ThreadPool* pool) {
  const int64_t numel = view.numel();
  const size_t groups = static_cast<size_t>((numel + kGroupElements - 1) / kGroupElements);
  const size_t width = bounds.size() + 1;
  std::vector<int64_t> of_groups(groups * width), counts(width);
  const ChunkReader reader(view);
  const auto scan = [&](size_t group, ChunkReader::Window* window) {
    const FloatEnvironment environment;
    const int64_t begin = static_cast<int64_t>(group) * kGroupElements;
    const int64_t end = std::min(numel, begin + kGroupElements);
    for (int64_t first = begin; first < end; first += kChunkElements) {
      const int64_t n = std::min(kChunkElements, end - first);
      HWY_DYNAMIC_DISPATCH(ChunkIntervals)
      (view.dtype, reader.Read(first, n, window), n, bounds.data(), bounds.size(),
       of_groups.data() + group * width, positive == nullptr ? nullptr : positive + first);
    }
  };
  if (groups > 1 && pool != nullptr && pool->threads() > 1) {
    pool->ParallelFor(groups, [&](size_t group) {
      ChunkReader::Window window;
      scan(group, &window);
    });
  } else {
    ChunkReader::Window window;
    for (size_t group = 0; group < groups; ++group) scan(group, &window);
  }
  for (size_t i = 0; i < of_groups.size(); ++i) counts[i % width] += of_groups[i];
  return counts;
}

}  // namespace msprobe::kernels
#endif  // HWY_ONCE
