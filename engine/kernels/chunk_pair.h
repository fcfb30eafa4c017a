// Two tensors, whose elements may hold different numbers of values, read in the same chunks of
// values.
//
//   const ChunkPairReader reader(target, golden);
//   ChunkPairReader::Windows windows;                        // one for each thread
//   const ChunkPair pair = reader.Read(first, n, &windows);  // values [first, first + n)
#pragma once

#include "engine/kernels/chunk_reader.h"
#include "engine/kernels/dtype_traits.h"

namespace msprobe::kernels {

// The same range of values of both tensors, contiguous.
struct ChunkPair {
  DType t, g;
  const uint8_t *tp, *gp;
  int64_t n;  // values
};

class ChunkPairReader {
 public:
  ChunkPairReader(const TensorView& target, const TensorView& golden)
      : t_(target.dtype), g_(golden.dtype), target_(target), golden_(golden) {}

  // Working memory; each thread has its own.
  struct Windows {
    ChunkReader::Window target, golden;
    explicit Windows(bool one_chunk = false) : target(one_chunk), golden(one_chunk) {}
  };

  // The result is valid as long as that of ChunkReader::Read.
  ChunkPair Read(int64_t first, int64_t n, Windows* windows) const {
    const int64_t tv = ValuesPerElement(t_), gv = ValuesPerElement(g_);
    return {t_, g_, target_.Read(first / tv, n / tv, &windows->target),
            golden_.Read(first / gv, n / gv, &windows->golden), n};
  }

 private:
  DType t_, g_;
  ChunkReader target_, golden_;
};

}  // namespace msprobe::kernels
