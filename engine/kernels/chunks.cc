#include "engine/kernels/chunks.h"

#include <cstring>

namespace msprobe {
namespace {

template <typename T>
uint8_t* CopyStrided(const uint8_t* source, int64_t step, int64_t n, uint8_t* out) {
  for (int64_t i = 0; i < n; ++i) {
    std::memcpy(out + i * static_cast<int64_t>(sizeof(T)), source + i * step, sizeof(T));
  }
  return out + n * static_cast<int64_t>(sizeof(T));
}

struct Pair {
  uint64_t low, high;
};

uint8_t* CopyRun(const uint8_t* source, int64_t size, int64_t stride, int64_t n, uint8_t* out) {
  if (stride == 1) {
    std::memcpy(out, source, static_cast<size_t>(n * size));
    return out + n * size;
  }
  switch (size) {
    case 1:
      return CopyStrided<uint8_t>(source, stride, n, out);
    case 2:
      return CopyStrided<uint16_t>(source, stride * 2, n, out);
    case 4:
      return CopyStrided<uint32_t>(source, stride * 4, n, out);
    case 8:
      return CopyStrided<uint64_t>(source, stride * 8, n, out);
    default:
      return CopyStrided<Pair>(source, stride * 16, n, out);
  }
}

}  // namespace

ChunkReader::ChunkReader(const TensorView& view)
    : data_(static_cast<const uint8_t*>(view.data)),
      size_(static_cast<int64_t>(DTypeSize(view.dtype))),
      contiguous_(view.IsContiguous()) {
  if (!contiguous_) runs_ = MakeRuns(view);
}

void ChunkReader::Gather(int64_t first, int64_t n, uint8_t* out) const {
  int64_t skip = first % runs_.run;  // only in the first run
  int64_t left = n;
  const int64_t first_run = first / runs_.run, last_run = (first + n - 1) / runs_.run + 1;
  runs_.ForEach(first_run, last_run, [&](int64_t offset) {
    const int64_t take = std::min(runs_.run - skip, left);
    const uint8_t* source = data_ + (offset + skip * runs_.run_stride) * size_;
    out = CopyRun(source, size_, runs_.run_stride, take, out);
    left -= take;
    skip = 0;
  });
}

}  // namespace msprobe
