#include "engine/kernels/digest.h"

#include <libdeflate.h>

#include "engine/kernels/chunk_reader.h"
#include "engine/kernels/chunks.h"

namespace msprobe {

uint32_t Crc32(const TensorView& view) {
  const int64_t numel = view.numel();
  if (numel == 0) return 0;
  const size_t size = DTypeSize(view.dtype);
  if (view.IsContiguous()) return libdeflate_crc32(0, view.data, static_cast<size_t>(numel) * size);
  const ChunkReader reader(view);
  ChunkReader::Window window;
  uint32_t crc = 0;
  for (int64_t first = 0; first < numel; first += kChunkElements) {
    const int64_t n = std::min(kChunkElements, numel - first);
    crc = libdeflate_crc32(crc, reader.Read(first, n, &window), static_cast<size_t>(n) * size);
  }
  return crc;
}

}  // namespace msprobe
