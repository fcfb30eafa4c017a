#include "capture/values/unwritten_memory.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "capture/python/attributes.h"
#include "capture/python/process_group.h"
#include "capture/python/torch_api.h"
#include "capture/values/tensor_access.h"
#include "capture/values/values_in_flight.h"

namespace msprobe::capture {
namespace {

uint64_t Number(const PyRef& number) {
  const uint64_t value = number ? PyLong_AsUnsignedLongLong(number.get()) : 0;
  if (PyErr_Occurred() == nullptr) return value;
  ClearError();
  return 0;
}

// Whether an index selects a part that is a view: numbers, slices, None and "...".
bool SelectsView(PyObject* index) {
  if (PyTuple_Check(index)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(index); ++i) {
      if (PyTuple_Check(PyTuple_GET_ITEM(index, i)) || !SelectsView(PyTuple_GET_ITEM(index, i)))
        return false;
    }
    return true;
  }
  return (PyLong_Check(index) && !PyBool_Check(index)) || PySlice_Check(index) ||
         index == Py_None || index == Py_Ellipsis;
}

}  // namespace

void UnwrittenMemory::Allocated(PyObject* tensor, std::string_view allocation) {
  const TorchApi& torch = TorchApi::Get();
  if (torch.storage_weak_ref == nullptr || !torch.IsPlainTensor(tensor)) return;
  const TensorAccess access(tensor, Fetch::kNever);
  if (!access.readable() || access.view().numel() == 0) return;
  const QuietTorch quiet(tensor);
  const PyRef storage = Call(tensor, "untyped_storage");
  if (storage) Add(storage.get(), 0, allocation);
}

void UnwrittenMemory::Freed(uintptr_t address) {
  const auto found = allocations_.lower_bound(address);
  if (found != allocations_.end() && found->first == address) allocations_.erase(found);
}

void UnwrittenMemory::Grown(PyObject* storage, uint64_t before, std::string_view allocation) {
  if (TorchApi::Get().storage_weak_ref == nullptr) return;
  const PyRef device = PyRef::Steal(PyObject_GetAttrString(storage, "device"));
  ClearError();
  if (device && StrOf(device.get()) == "cpu") Add(storage, before, allocation);
}

void UnwrittenMemory::Add(PyObject* storage, uint64_t before, std::string_view allocation) {
  const auto address = static_cast<uintptr_t>(Number(Call(storage, "data_ptr")));
  const uint64_t bytes = Number(Call(storage, "nbytes"));
  PyRef weak = PyRef::Steal(PyObject_CallOneArg(TorchApi::Get().storage_weak_ref, storage));
  if (!weak) ClearError();
  if (!weak || address == 0 || bytes <= before) return;
  const uintptr_t begin = address + before;
  const uint64_t size = bytes - before;
  // It is new memory: whatever was there before has been freed.
  auto old = allocations_.lower_bound(begin);
  if (old != allocations_.begin() && std::prev(old)->second.end > begin) --old;
  while (old != allocations_.end() && old->first < begin + size) old = allocations_.erase(old);
  allocations_.emplace(
      begin, Allocation{begin + size, UnwrittenBytes(reinterpret_cast<const void*>(begin), size),
                        std::move(weak), std::string(allocation)});
  if (allocations_.size() >= forget_at_) Forget();
}

void UnwrittenMemory::Written(PyObject* value) {
  if (empty()) return;
  if (PyTuple_Check(value) || PyList_Check(value)) {
    const PyRef items = PyRef::Steal(PySequence_Tuple(value));
    if (!items) return ClearError();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); ++i) {
      if (!PyTuple_Check(PyTuple_GET_ITEM(items.get(), i)))
        Written(PyTuple_GET_ITEM(items.get(), i));
    }
    return;
  }
  if (IsPointToPoint(value)) {  // of batch_isend_irecv
    const PyRef tensor = PyRef::Steal(PyObject_GetAttrString(value, "tensor"));
    ClearError();
    if (tensor && TorchApi::Get().IsTensor(tensor.get())) Written(tensor.get());
    return;
  }
  if (!TorchApi::Get().IsTensor(value)) return;
  const TensorAccess access(value, Fetch::kNever);
  if (!access.readable() || access.resolved() != nullptr) return;
  const auto found = Find(access.view().data);
  if (found == allocations_.end()) return;
  found->second.bytes.Write(access.view());
  if (found->second.bytes.empty()) allocations_.erase(found);
}

void UnwrittenMemory::Assigned(PyObject* tensor, PyObject* index) {
  if (empty() || !SelectsView(index) || !TorchApi::Get().IsPlainTensor(tensor)) return;
  {
    const TensorAccess access(tensor, Fetch::kNever);
    if (!access.readable() || AllocationOf(access.view()).empty()) return;
  }
  const QuietTorch quiet(tensor);
  const PyRef detached = Call(tensor, "detach");
  if (!detached) return;
  const PyRef part = PyRef::Steal(PyObject_GetItem(detached.get(), index));
  if (!part) return ClearError();
  Written(part.get());
}

void UnwrittenMemory::Clear() {
  allocations_.clear();
  forget_at_ = kForgetAt;
}

bool UnwrittenMemory::HasChanged(PyObject* value, const Entry& entry) {
  if (!TorchApi::Get().IsTensor(value)) return false;
  const TensorAccess access(value, Fetch::kNever);
  if (!access.readable() || AllocationOf(access.view()).empty()) return false;
  const uint64_t now = kernels::ComputeStats(access.view()).fingerprint;
  const auto shows_it = [&](const TensorValue& tensor) {
    return !tensor.unwritten.empty() && tensor.stats.fingerprint == now;
  };
  return std::none_of(entry.tensors().begin(), entry.tensors().end(), shows_it);
}

std::string_view UnwrittenMemory::AllocationOf(const TensorView& view) {
  const auto found = Find(view.data);
  if (found == allocations_.end() || !found->second.bytes.Shows(view)) return {};
  return found->second.name;
}

UnwrittenMemory::Allocations::iterator UnwrittenMemory::Find(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  auto found = allocations_.upper_bound(at);
  if (found == allocations_.begin()) return allocations_.end();
  --found;
  if (at >= found->second.end) return allocations_.end();
  if (!IsFreed(found->second.storage)) return found;
  allocations_.erase(found);
  return allocations_.end();
}

void UnwrittenMemory::Forget() {
  std::erase_if(allocations_, [](const auto& item) { return IsFreed(item.second.storage); });
  forget_at_ = std::max(kForgetAt, 2 * allocations_.size());
}

}  // namespace msprobe::capture
