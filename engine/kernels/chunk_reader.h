// Any tensor, chunk by chunk, as contiguous memory.
//
//   const ChunkReader reader(view);
//   ChunkReader::Window window;                           // one for each thread
//   const uint8_t* p = reader.Read(first, n, &window);    // elements [first, first + n)
#pragma once

#include <cstdint>
#include <memory>

#include "engine/tensor/tensor_view.h"

namespace msprobe::kernels {

class ChunkReader {
 public:
  // The part of the tensor that was copied last.
  class Window {
   public:
    // `one_chunk`: only one Read will follow, so that no more than it asks for is copied.
    explicit Window(bool one_chunk = false) : one_chunk_(one_chunk) {}

   private:
    friend class ChunkReader;
    bool one_chunk_;
    std::unique_ptr<uint8_t[]> bytes_;
    int64_t capacity_ = 0;         // bytes
    int64_t begin_ = 0, end_ = 0;  // elements
  };

  explicit ChunkReader(const TensorView& view);

  bool contiguous() const { return contiguous_; }
  // Elements [first, first + n) in logical order. If the tensor is contiguous, the result points
  // into it (`window` may then be null); otherwise into a copy, which is valid until the next Read
  // with this window. It is cheapest to read the chunks of a group one after the other.
  const uint8_t* Read(int64_t first, int64_t n, Window* window) const {
    if (contiguous_) return data_ + first * size_;
    return Copy(first, n, window);
  }

 private:
  const uint8_t* Copy(int64_t first, int64_t n, Window* window) const;
  void Gather(int64_t first, int64_t n, uint8_t* out) const;
  void GatherTiles(int64_t first, int64_t n, uint8_t* out) const;

  const uint8_t* data_;
  int64_t size_;  // bytes an element
  int64_t numel_;
  bool contiguous_;
  bool tiles_ = false;  // neighbours in memory are a row apart in logical order (transposed)
  StridedRuns runs_;    // empty when contiguous
};

}  // namespace msprobe::kernels
