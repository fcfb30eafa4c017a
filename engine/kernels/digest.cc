#include "engine/kernels/digest.h"

#include <libdeflate.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "engine/kernels/chunk_reader.h"
#include "engine/kernels/chunks.h"

namespace msprobe {

namespace {

// The element bytes in logical order, in pieces of whole words but for the last:
// visit(bytes, size).
template <typename Visit>
void ForEachPiece(const TensorView& view, const Visit& visit) {
  const int64_t numel = view.numel();
  if (numel == 0) return;
  const size_t size = DTypeSize(view.dtype);
  if (view.IsContiguous()) {
    visit(static_cast<const uint8_t*>(view.data), static_cast<size_t>(numel) * size);
    return;
  }
  const ChunkReader reader(view);
  ChunkReader::Window window;
  for (int64_t first = 0; first < numel; first += kChunkElements) {
    const int64_t n = std::min(kChunkElements, numel - first);
    visit(reader.Read(first, n, &window), static_cast<size_t>(n) * size);
  }
}

uint64_t XorBytes(const uint8_t* p, size_t size) {
  // As many words at a time as hide the latency of one: as quick as memory.
  constexpr size_t kWords = 16;
  uint64_t words[kWords] = {}, block[kWords];
  for (; size >= sizeof(block); size -= sizeof(block), p += sizeof(block)) {
    std::memcpy(block, p, sizeof(block));
    for (size_t i = 0; i < kWords; ++i) words[i] ^= block[i];
  }
  std::fill(std::begin(block), std::end(block), 0);
  std::memcpy(block, p, size);
  uint64_t result = 0;
  for (size_t i = 0; i < kWords; ++i) result ^= words[i] ^ block[i];
  return result;
}

}  // namespace

uint32_t Crc32(const TensorView& view) {
  uint32_t crc = 0;
  ForEachPiece(view, [&](const uint8_t* p, size_t n) { crc = libdeflate_crc32(crc, p, n); });
  return crc;
}

uint64_t Xor64(const TensorView& view) {
  uint64_t result = 0;
  ForEachPiece(view, [&](const uint8_t* p, size_t n) { result ^= XorBytes(p, n); });
  return result;
}

}  // namespace msprobe
