#include "engine/kernels/digest.h"

#include <algorithm>

#include "engine/kernels/checksum_parts.h"
#include "engine/kernels/chunk_reader.h"
#include "engine/kernels/chunks.h"

namespace msprobe::kernels {

namespace {

uint64_t ChecksumOf(const TensorView& view, Checksum kind) {
  const int64_t numel = view.numel();
  const int64_t size = static_cast<int64_t>(DTypeSize(view.dtype));
  const ChunkReader reader(view);
  ChunkReader::Window window;
  uint64_t sum = 0;
  for (int64_t first = 0; first < numel; first += kChunkElements) {
    const int64_t n = std::min(kChunkElements, numel - first);
    sum = ContinueChecksum(kind, sum, reader.Read(first, n, &window), n * size);
  }
  return sum;
}

}  // namespace

uint32_t Crc32(const TensorView& view) {
  return static_cast<uint32_t>(ChecksumOf(view, Checksum::kCrc32));
}

uint64_t Xor64(const TensorView& view) { return ChecksumOf(view, Checksum::kXor); }

}  // namespace msprobe::kernels
