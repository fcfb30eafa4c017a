// Memory on a device, and as much pinned memory of the host, through which small tensors travel. It
// consists of chunks that are filled one after another. A step starts with the first chunk: as it
// fills them with tensors of the same dtypes and shapes as the step before, at the same places, the
// parts of the memory as tensors are there already.
//
//   StagingRing ring;
//   // the next chunk, which nobody uses
//   ring.Advance(&torch, device);
//   const PyRef part = ring.chunk()->Part(&torch, dtype, shape, offset);
//   // at the end of a step: nothing is under way
//   ring.Restart();
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "capture/devices/torch_calls.h"
#include "capture/python/py_ref.h"
#include "engine/tensor/dtype.h"

namespace msprobe::capture {

// Memory that no operation of the inference mode owns: other operations may write to it. `device`
// null: pinned memory of the host.
PyRef NewMemory(TorchCalls* torch, const PyRef& shape, DType dtype, const PyRef& device);
const PyRef& DTypeObject(TorchCalls* torch, DType dtype);  // torch.float32
PyRef IntTuple(std::span<const int64_t> numbers);
const char* AddressOf(TorchCalls* torch, const PyRef& tensor);

struct StagingChunk {
  static constexpr size_t kBytes = size_t{1} << 20;

  PyRef device, host;
  const char* data = nullptr;  // of `host`
  size_t used = 0, sent = 0;   // bytes from the start: filled, and under way or read
  int under_way = 0;           // transfers that were not read yet

  // A part of the device's memory as a tensor; null after a failure. `offset`: in bytes, a multiple
  // of the element's.
  PyRef Part(TorchCalls* torch, DType dtype, std::span<const int64_t> shape, size_t offset);

 private:
  struct Known {
    size_t offset;
    DType dtype;
    std::vector<int64_t> shape;
    PyRef part;
  };
  std::map<DType, PyRef> views_;  // the device's memory as elements of another dtype
  std::unordered_map<uint64_t, Known> parts_;
};

class StagingRing {
 public:
  // The chunk that is being filled; null: none.
  StagingChunk* chunk() const { return filling_ ? chunks_[place_].get() : nullptr; }
  // Whether the chunk that comes next is still under way, and there may be no more chunks.
  bool IsFull() const;
  // The next chunk becomes chunk(). False after a failure. IsFull() must be false.
  bool Advance(TorchCalls* torch, const PyRef& device);
  void Close() { filling_ = false; }  // what comes next starts another chunk
  void Restart();

 private:
  // A step that needs no more chunks finds each tensor's place as it was in the step before.
  static constexpr size_t kFewChunks = 8;
  static constexpr size_t kMostChunks = 64;

  size_t Next() const { return started_ ? (place_ + 1) % chunks_.size() : 0; }
  bool NextIsFree() const { return Next() < chunks_.size() && chunks_[Next()]->under_way == 0; }

  std::vector<std::unique_ptr<StagingChunk>> chunks_;
  size_t place_ = 0;
  bool started_ = false, filling_ = false;
};

}  // namespace msprobe::capture
