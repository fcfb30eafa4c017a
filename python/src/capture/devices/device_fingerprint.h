// The fingerprint of a large tensor, without a copy of it: the device adds up its blocks
// (engine/kernels/fingerprint.h) by integer operations of the framework, 1/32 of its bytes travel,
// and the host finishes them to the value that it computes of a tensor of its own. Whoever can wrap
// around 64-bit sums and products can compute it; a device is believed when it gave the right sums
// of a known tensor.
//
//   const BlockSums sums(DType::kBFloat16, elements);              // of a contiguous tensor
//   // `there`: DigestBytes(sums) uint8 on the device
//   DigestThere(&torch, tensor, sums, scratch, there);
//   // s.fingerprint is that of a tensor of the host
//   kernels::Stats s = StatisticsFromDigest(sums, on_the_host);
#pragma once

#include <cstddef>
#include <cstdint>

#include "capture/devices/torch_calls.h"
#include "capture/python/py_ref.h"
#include "engine/kernels/stats.h"
#include "engine/tensor/dtype.h"

namespace msprobe::capture {

// What the device adds up: the whole chunks of a tensor. The elements after them, the tail, are
// fewer than a chunk.
struct BlockSums {
  BlockSums(DType of, int64_t count);

  DType dtype;
  int64_t elements, chunks, tail;  // `tail`: elements
  int64_t blocks;                  // of a chunk
  // For each block eight sums of products, then for each block eight sums of words.
  int64_t words() const { return 2 * chunks * blocks * 8; }
};

// Memory on a device for one stream.
struct FingerprintScratch {
  PyRef mark;                 // of the stream; null: there is none yet
  PyRef low, high;            // kTileWords int64 each
  PyRef low_keys, high_keys;  // of a block; on the host: what they were copied from
  PyRef host_keys;
};

// Null members after a failure. `device`: torch.device.
FingerprintScratch NewFingerprintScratch(TorchCalls* torch, const PyRef& device, const PyRef& mark);

// What travels: the sums, the numbers of ReduceThere (device_statistics.h), the elements of the
// tail. `there`: so many uint8 on the device. `plain`: contiguous, without a graph. False after a
// failure.
size_t DigestBytes(const BlockSums& sums);
bool DigestThere(TorchCalls* torch, const PyRef& plain, const BlockSums& sums,
                 const FingerprintScratch& scratch, const PyRef& there);
// The words of the whole chunks, added up, from the sums at `out`.
uint64_t HashOfChunks(const BlockSums& sums, const char* out);
// Without counts.
kernels::Stats StatisticsFromDigest(const BlockSums& sums, const char* data);

// Pinned memory whose bits are spread over all values.
class KnownMemory {
 public:
  static constexpr int64_t kBytes = 3 * 16384 + 20;  // whole chunks and a tail, of any dtype
  static const KnownMemory& Get();
  const PyRef& bytes() const { return bytes_; }  // uint8; null: there is no pinned memory
  uint64_t Fingerprint(DType dtype) const;       // of the memory as a tensor

 private:
  KnownMemory();
  PyRef bytes_;
  const char* data_ = nullptr;
};

}  // namespace msprobe::capture
