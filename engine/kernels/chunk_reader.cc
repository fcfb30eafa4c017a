#include "engine/kernels/chunk_reader.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "engine/kernels/chunks.h"

namespace msprobe::kernels {
namespace {

template <typename T>
uint8_t* CopyStrided(const uint8_t* source, int64_t step, int64_t n, uint8_t* out) {
  for (int64_t i = 0; i < n; ++i) {
    std::memcpy(out + i * static_cast<int64_t>(sizeof(T)), source + i * step, sizeof(T));
  }
  return out + n * static_cast<int64_t>(sizeof(T));
}

struct Bytes16 {
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
      return CopyStrided<Bytes16>(source, stride * 16, n, out);
  }
}

// Copies `rows` x `columns` elements to contiguous rows. In the source, rows are `row_step` bytes
// apart and columns `column_step`. The copy goes through a small square of memory, so that each
// cache line of both sides is touched only once. rows <= kTileRows.
constexpr int64_t kTileRows = 16, kTileColumns = 16;
template <typename T>
void CopyTiles(const uint8_t* source, int64_t row_step, int64_t column_step, int64_t rows,
               int64_t columns, uint8_t* out) {
  constexpr int64_t kSize = sizeof(T);
  for (int64_t c = 0; c < columns; c += kTileColumns) {
    T tile[kTileColumns][kTileRows];
    const int64_t width = std::min(kTileColumns, columns - c);
    for (int64_t i = 0; i < width; ++i) {
      const uint8_t* from = source + (c + i) * column_step;
      if (rows == kTileRows && row_step == kSize) {
        std::memcpy(tile[i], from, sizeof(tile[i]));
      } else {
        for (int64_t r = 0; r < rows; ++r) std::memcpy(&tile[i][r], from + r * row_step, kSize);
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      T line[kTileColumns];
      for (int64_t i = 0; i < width; ++i) line[i] = tile[i][r];
      std::memcpy(out + (r * columns + c) * kSize, line, static_cast<size_t>(width * kSize));
    }
  }
}

void CopyTilesOfSize(const uint8_t* source, int64_t size, int64_t row_stride, int64_t column_stride,
                     int64_t rows, int64_t columns, uint8_t* out) {
  const int64_t row = row_stride * size, column = column_stride * size;
  switch (size) {
    case 1:
      return CopyTiles<uint8_t>(source, row, column, rows, columns, out);
    case 2:
      return CopyTiles<uint16_t>(source, row, column, rows, columns, out);
    case 4:
      return CopyTiles<uint32_t>(source, row, column, rows, columns, out);
    case 8:
      return CopyTiles<uint64_t>(source, row, column, rows, columns, out);
    default:
      return CopyTiles<Bytes16>(source, row, column, rows, columns, out);
  }
}

}  // namespace

ChunkReader::ChunkReader(const TensorView& view)
    : data_(static_cast<const uint8_t*>(view.data)),
      size_(static_cast<int64_t>(DTypeSize(view.dtype))),
      numel_(view.numel()),
      contiguous_(view.IsContiguous()) {
  if (contiguous_) return;
  runs_ = MakeRuns(view);
  tiles_ = !runs_.extent.empty() && std::abs(runs_.run_stride) > std::abs(runs_.stride.back());
}

const uint8_t* ChunkReader::Copy(int64_t first, int64_t n, Window* window) const {
  if (first < window->begin_ || first + n > window->end_) {
    // A transposed tensor is copied a group of rows at a time. Read row by row, each element would
    // load a cache line, which would be evicted before its next element is needed.
    const int64_t group_end = std::min(numel_, (first / kGroupElements + 1) * kGroupElements);
    window->begin_ = first;
    window->end_ = tiles_ && !window->one_chunk_ ? std::max(group_end, first + n) : first + n;
    const int64_t bytes = (window->end_ - first) * size_;
    if (bytes > window->capacity_) {
      window->bytes_.reset(new uint8_t[static_cast<size_t>(bytes)]);
      window->capacity_ = bytes;
    }
    if (tiles_) {
      GatherTiles(first, window->end_ - first, window->bytes_.get());
    } else {
      Gather(first, n, window->bytes_.get());
    }
  }
  return window->bytes_.get() + (first - window->begin_) * size_;
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

void ChunkReader::GatherTiles(int64_t first, int64_t n, uint8_t* out) const {
  const int64_t run = runs_.run, end = first + n;
  const int64_t whole_begin = (first + run - 1) / run, whole_end = end / run;  // whole runs
  if (whole_end <= whole_begin) return Gather(first, n, out);
  const auto at = [&](int64_t element) { return out + (element - first) * size_; };
  if (first < whole_begin * run) Gather(first, whole_begin * run - first, out);
  const int64_t rows = runs_.extent.back();
  for (int64_t r = whole_begin; r < whole_end;) {
    const int64_t take = std::min({kTileRows, rows - r % rows, whole_end - r});
    runs_.ForEach(r, r + 1, [&](int64_t offset) {
      CopyTilesOfSize(data_ + offset * size_, size_, runs_.stride.back(), runs_.run_stride, take,
                      run, at(r * run));
    });
    r += take;
  }
  if (whole_end * run < end) Gather(whole_end * run, end - whole_end * run, at(whole_end * run));
}

}  // namespace msprobe::kernels
