#include "engine/kernels/find_nonfinite.h"

#include <algorithm>
#include <cmath>

#include "engine/kernels/chunk_reader.h"
#include "engine/kernels/chunks.h"
#include "engine/kernels/stats.h"
#include "engine/tensor/float_formats.h"

namespace msprobe::kernels {

int64_t FirstNonfinite(const TensorView& view) {
  const DTypeKind kind = DTypeKindOf(view.dtype);
  // The two 4-bit values of a kFloat4E2M1X2 byte are always finite.
  if ((kind != DTypeKind::kFloat && kind != DTypeKind::kComplex) ||
      view.dtype == DType::kFloat4E2M1X2)
    return -1;
  const int64_t numel = view.numel(), size = static_cast<int64_t>(DTypeSize(view.dtype));
  const ChunkReader reader(view);
  ChunkReader::Window window;
  for (int64_t first = 0; first < numel; first += kChunkElements) {
    const int64_t n = std::min(kChunkElements, numel - first);
    const uint8_t* p = reader.Read(first, n, &window);
    const Stats stats = ComputeStats({.data = p, .dtype = view.dtype, .ndim = 1, .shape = &n});
    if (stats.nan + stats.pos_inf + stats.neg_inf == 0) continue;
    for (int64_t i = 0; i < n; ++i) {
      const std::complex<double> value = ElementToComplex(view.dtype, p + i * size);
      if (!std::isfinite(value.real()) || !std::isfinite(value.imag())) return first + i;
    }
  }
  return -1;
}

}  // namespace msprobe::kernels
