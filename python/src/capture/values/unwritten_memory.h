// Memory of the host that torch.empty and its like returned, as long as parts of it are not
// written. Its content is another in each run; a dump says which values show it, so that a
// comparison does not blame a call for it.
//
//   memory.Allocated(tensor, "torch.empty: train.py:12 b = torch.empty(8)");
//   memory.Written(part);                  // part.copy_(x)
//   memory.AllocationOf(view);             // that text, or "": all of it is written
#pragma once

#include <Python.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "capture/python/py_ref.h"
#include "engine/model/entry.h"
#include "engine/tensor/unwritten_bytes.h"

namespace msprobe::capture {

// Needs the GIL. Never leaves a Python error set. Knows nothing in versions of PyTorch without
// Tensor.untyped_storage (before 2.0).
class UnwrittenMemory {
 public:
  bool empty() const { return allocations_.empty(); }

  // A call returned this tensor, whose memory nobody has written. `allocation` names the call.
  void Allocated(PyObject* tensor, std::string_view allocation);
  // A storage (torch.UntypedStorage) of the host has `before` bytes of content, and was made
  // larger.
  void Grown(PyObject* storage, uint64_t before, std::string_view allocation);
  // Memory at this address is freed, though its storage lives: FSDP resizes storages to 0 bytes.
  void Freed(uintptr_t address);
  // A call wrote every element of this value: a tensor, a torch.distributed.P2POp, or a list or
  // tuple of them.
  void Written(PyObject* value);
  // tensor[index] = ... An index of tensors is not followed: what it wrote stays unwritten here.
  void Assigned(PyObject* tensor, PyObject* index);
  // Whether the elements of a value that is unwritten differ from those that `entry`, made before a
  // call, has recorded of it.
  bool HasChanged(PyObject* value, const Entry& entry);
  // From here on it is not seen what is written.
  void Clear();
  // The call that returned the memory when an element of `view` is unwritten, else "". Valid until
  // the next call of another member.
  std::string_view AllocationOf(const TensorView& view);

 private:
  struct Allocation {
    uintptr_t end = 0;
    UnwrittenBytes bytes;
    PyRef storage;  // a StorageWeakRef: tells when the memory is freed
    std::string name;
  };
  void Add(PyObject* storage, uint64_t before, std::string_view allocation);
  using Allocations = std::map<uintptr_t, Allocation>;  // by the address of the first byte

  // The allocation that an address lies in, end() when there is none that lives.
  Allocations::iterator Find(const void* address);
  void Forget();  // allocations that were freed

  // Forget is worth its time from this number of allocations on.
  static constexpr size_t kForgetAt = 256;

  Allocations allocations_;
  size_t forget_at_ = kForgetAt;
};

}  // namespace msprobe::capture
