#include "capture/devices/staging_ring.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/tensor/tensor_view.h"

namespace msprobe::capture {
namespace {

constexpr size_t kMostParts = 2048;  // of a chunk that are kept as tensors, some 500 bytes each

uint64_t HashOfPlace(size_t offset, DType dtype, std::span<const int64_t> shape) {
  uint64_t hash = offset * 64 + static_cast<uint64_t>(dtype) + 1469598103934665603;
  for (const int64_t extent : shape)
    hash = (hash ^ static_cast<uint64_t>(extent)) * 1099511628211 + shape.size();
  return hash;
}

}  // namespace

const PyRef& DTypeObject(TorchCalls* torch, DType dtype) {
  static auto& known = *new std::map<DType, PyRef>;
  PyRef& object = known[dtype];
  if (!object) {
    const std::string name(DTypeTorchName(dtype));
    object = torch->Constant(name.substr(name.find('.') + 1).c_str());
  }
  return object;
}

PyRef IntTuple(std::span<const int64_t> numbers) {
  PyRef tuple = PyRef::Steal(PyTuple_New(static_cast<Py_ssize_t>(numbers.size())));
  for (size_t i = 0; tuple && i < numbers.size(); ++i)
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(numbers[i]));
  return tuple;
}

const char* AddressOf(TorchCalls* torch, const PyRef& tensor) {
  const PyRef address = torch->Call(tensor, "data_ptr");
  void* const data = address ? PyLong_AsVoidPtr(address.get()) : nullptr;
  ClearError();
  return static_cast<const char*>(data);
}

PyRef NewMemory(TorchCalls* torch, const PyRef& shape, DType dtype, const PyRef& device) {
  const PyRef mode = torch->Call(torch->torch(), "inference_mode", PyRef::Borrow(Py_False));
  torch->Call(mode, "__enter__");
  const PyRef names = PyRef::Steal(PyDict_New());
  PyRef made;
  const PyRef empty = torch->Constant("empty"), type = DTypeObject(torch, dtype);
  if (torch->ok() && names && PyDict_SetItemString(names.get(), "dtype", type.get()) == 0 &&
      (device ? PyDict_SetItemString(names.get(), "device", device.get())
              : PyDict_SetItemString(names.get(), "pin_memory", Py_True)) == 0) {
    const PyRef all = PyRef::Steal(PyTuple_Pack(1, shape.get()));
    made = torch->Checked(all ? PyObject_Call(empty.get(), all.get(), names.get()) : nullptr);
  }
  TorchCalls leave;
  const PyRef none = PyRef::Borrow(Py_None);
  if (mode) leave.Call(mode, "__exit__", none, none, none);
  return made;
}

PyRef StagingChunk::Part(TorchCalls* torch, DType dtype, std::span<const int64_t> shape,
                         size_t offset) {
  static PyObject* const as_strided = Interned("as_strided");
  const uint64_t place = HashOfPlace(offset, dtype, shape);
  const auto found = parts_.find(place);
  if (found != parts_.end() && found->second.offset == offset && found->second.dtype == dtype &&
      std::ranges::equal(found->second.shape, shape))
    return found->second.part;
  PyRef& memory = views_[dtype];
  if (!memory) memory = torch->Call(device, "view", DTypeObject(torch, dtype));
  const std::vector<int64_t> extents(shape.begin(), shape.end());
  const PyRef first = PyRef::Steal(PyLong_FromSize_t(offset / DTypeSize(dtype)));
  PyRef part = torch->CallFast(memory.get(), as_strided, IntTuple(extents),
                               IntTuple(ContiguousStrides(extents)), first);
  if (!part) return part;
  if (parts_.size() >= kMostParts) parts_.clear();
  parts_.insert_or_assign(place, Known{offset, dtype, extents, part});
  return part;
}

bool StagingRing::IsFull() const { return chunks_.size() >= kMostChunks && !NextIsFree(); }

bool StagingRing::Advance(TorchCalls* torch, const PyRef& device) {
  const bool at_end = !started_ ? chunks_.empty() : place_ + 1 == chunks_.size();
  size_t next = chunks_.empty() ? 0 : Next();
  if ((at_end && chunks_.size() < kFewChunks) || !NextIsFree()) {
    auto chunk = std::make_unique<StagingChunk>();
    const PyRef size = PyRef::Steal(PyLong_FromSize_t(StagingChunk::kBytes));
    chunk->device = NewMemory(torch, size, DType::kUInt8, device);
    chunk->host = NewMemory(torch, size, DType::kUInt8, PyRef());
    chunk->data = AddressOf(torch, chunk->host);
    if (!torch->ok()) return false;
    next = started_ ? place_ + 1 : 0;
    chunks_.insert(chunks_.begin() + static_cast<std::ptrdiff_t>(next), std::move(chunk));
  }
  place_ = next;
  chunks_[place_]->used = chunks_[place_]->sent = 0;
  started_ = filling_ = true;
  return true;
}

void StagingRing::Restart() {
  started_ = filling_ = false;
  place_ = 0;
}

}  // namespace msprobe::capture
