#include "engine/kernels/ratio.h"

#include <cmath>
#include <utility>

#include "engine/kernels/chunk_reader.h"
#include "engine/kernels/chunks.h"
#include "engine/kernels/ratio_scalar.h"
#include "engine/tensor/float_formats.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/ratio.cc"
#include <hwy/foreach_target.h>  // compiles this file once for each target
#include <hwy/highway.h>

#include "engine/kernels/decode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {

inline void DecodeChunk(DType dtype, const uint8_t* p, int64_t n, double* values) {
#if HWY_TARGET == HWY_SCALAR
  const int64_t size = static_cast<int64_t>(DTypeSize(dtype));
  for (int64_t i = 0; i < n; ++i) values[i] = ElementToDouble(dtype, p + i * size);
#else
  DecodeDoubles(dtype, p, n, values);
#endif
}

// Selections in place of branches over eight lanes, which the compiler makes vectors of.
RatioNode RatioOfChunk(DType target, const uint8_t* t_bytes, DType golden, const uint8_t* g_bytes,
                       int64_t n, double floor) {
  constexpr int64_t kLanes = 8;
  alignas(64) double t_values[kChunkElements], g_values[kChunkElements];
  DecodeChunk(target, t_bytes, n, t_values);
  DecodeChunk(golden, g_bytes, n, g_values);
  const int64_t filled = (n + kLanes - 1) / kLanes * kLanes;
  for (int64_t i = n; i < filled; ++i) t_values[i] = g_values[i] = 0;  // equal: counts as nothing
  double ratio[kLanes], error[kLanes] = {}, sum[kLanes] = {};
  int64_t different[kLanes] = {}, nan[kLanes] = {}, inf[kLanes] = {}, flips[kLanes] = {};
  for (double& each : ratio) each = 1;
  const double least_product = floor * floor;
  for (int64_t i = 0; i < filled; i += kLanes) {
    for (int64_t k = 0; k < kLanes; ++k) {
      const double t = t_values[i + k], g = g_values[i + k];
      const double t_size = std::abs(t), g_size = std::abs(g);
      const bool t_nan = t != t, g_nan = g != g;
      const bool t_inf = t_size == INFINITY, g_inf = g_size == INFINITY;
      const bool differs = (t != g) & !(t_nan & g_nan);
      const bool some_nan = t_nan | g_nan;
      const bool signs = (t < 0) != (g < 0);
      different[k] += differs;
      nan[k] += differs & some_nan;
      inf[k] += differs & !some_nan & (t_inf != g_inf);
      flips[k] += differs & !some_nan & (t_inf == g_inf) & signs &
                  (t_inf | (t_size * g_size > least_product));
      const bool measured = differs & !some_nan & !t_inf & !g_inf;
      const double a = t_size > floor ? t_size : floor, b = g_size > floor ? g_size : floor;
      const double one = a > b ? a / b : b / a;
      const double r = measured & (a != b) ? one : 1.0;
      ratio[k] = r > ratio[k] ? r : ratio[k];
      const double relative = (t - g) / (g_size > 1.0 ? g_size : 1.0);
      const double e = measured ? relative : 0.0, size = std::abs(e);
      error[k] = size > error[k] ? size : error[k];
      sum[k] += e;
    }
  }
  RatioStats s{.count = n};
  for (int64_t k = 0; k < kLanes; ++k) {
    s.different += different[k];
    s.nan += nan[k];
    s.inf += inf[k];
    s.flips += flips[k];
    s.ratio = std::max(s.ratio, ratio[k]);
    s.error = std::max(s.error, error[k]);
  }
  s.signed_error =
      ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
  return {s};
}

}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msprobe::kernels {

HWY_EXPORT(RatioOfChunk);

RatioStats ComputeRatio(const TensorView& target, const TensorView& golden, double floor,
                        ThreadPool* pool) {
  const auto measured = [](DType dtype) {
    return DTypeKindOf(dtype) != DTypeKind::kComplex && dtype != DType::kFloat4E2M1X2;
  };
  const int64_t numel = target.numel();
  if (numel == 0 || numel != golden.numel() || !measured(target.dtype) || !measured(golden.dtype))
    return {};
  const ChunkReader t_reader(target), g_reader(golden);
  using Windows = std::pair<ChunkReader::Window, ChunkReader::Window>;
  return FoldChunks<RatioNode, Windows>(
             numel, pool,
             [&](int64_t first, int64_t n, int64_t /*chunk*/, Windows& windows) {
               return HWY_DYNAMIC_DISPATCH(RatioOfChunk)(
                   target.dtype, t_reader.Read(first, n, &windows.first), golden.dtype,
                   g_reader.Read(first, n, &windows.second), n, floor);
             })
      .stats;
}

}  // namespace msprobe::kernels
#endif  // HWY_ONCE
