#include "capture/values/tensor_access.h"

#include <algorithm>
#include <utility>

#include "capture/calls/interpose.h"
#include "capture/python/torch_api.h"
#include "capture/values/distributed_tensor.h"
#include "capture/values/transformed_tensor.h"
#include "engine/tensor/dlpack.h"

namespace msprobe::capture {
namespace {

// Result of a method without arguments, null without an error set when it raises.
PyRef CallMethod(PyObject* object, const char* name) {
  PyRef result = PyRef::Steal(PyObject_CallMethod(object, name, nullptr));
  if (!result) ClearError();
  return result;
}

bool IsTrueMethod(PyObject* object, const char* name) {
  return CallMethod(object, name).get() == Py_True;
}

// Copies a sequence of ints; -1 when it is not one or too long.
int ReadInts(PyObject* sequence, int64_t* out, int max) {
  PyRef fast = PyRef::Steal(PySequence_Fast(sequence, ""));
  if (!fast || PySequence_Fast_GET_SIZE(fast.get()) > max) {
    ClearError();
    return -1;
  }
  const int n = static_cast<int>(PySequence_Fast_GET_SIZE(fast.get()));
  for (int i = 0; i < n; ++i) {
    out[i] = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(fast.get(), i));  // symbolic sizes raise
    if (out[i] == -1 && PyErr_Occurred()) {
      ClearError();
      return -1;
    }
  }
  return n;
}

// Whether a tensor has no memory at its address. Such a tensor (a wrapper of another tensor, as
// in torchao; a view that was made while a compiler traces) may report its storage offset as its
// address. Called only for addresses so low that hardly any memory lies there.
bool IsOffsetFromNull(PyObject* tensor, const void* data, DType dtype) {
  constexpr uintptr_t kUsualMemory = uintptr_t{1} << 40;
  const auto address = reinterpret_cast<uintptr_t>(data);
  if (address == 0 || address >= kUsualMemory) return false;
  const PyRef offset = PyRef::Steal(TorchApi::Get().storage_offset(tensor));
  const int64_t elements = offset ? PyLong_AsLongLong(offset.get()) : -1;
  ClearError();
  return elements < 0 || static_cast<uintptr_t>(elements) * DTypeSize(dtype) == address;
}

}  // namespace

TensorAccess::TensorAccess(PyObject* tensor, Fetch fetch) : fetch_(fetch) {
  const QuietTorch quiet(tensor);
  holder_ = TorchApi::Get().IsPlainTensor(tensor) ? tensor : Holder(&tensor);
  if (holder_ != nullptr) Read();
  if (readable_) return;
  if (wrapped_) tensor = holder_ != nullptr ? holder_ : wrapped_.get();
  if (!described_) Describe(tensor);
  if (!on_device_ && unreadable_.empty()) unreadable_ = WhyUnreadable(tensor);
}

void TensorAccess::Read() {
  if (TorchApi::Get().exchange == nullptr) {
    EnterTransforms();
    readable_ = holder_ != nullptr && ReadAttributes(holder_);
    return;
  }
  readable_ = ReadExchange(holder_);
  // A wrapper of torch.func has no memory. Only what could not be read is asked whether it is one.
  if (!readable_ && !on_device_ && EnterTransforms())
    readable_ = holder_ != nullptr && ReadExchange(holder_);
}

bool TensorAccess::EnterTransforms() {
  TransformedTensor found = Unwrap(holder_);
  if (!found.inner) return false;
  wrapped_ = std::move(found.inner);
  batch_dims_ = std::move(found.batch_dims);
  own_strides_.clear();
  PyObject* tensor = wrapped_.get();
  holder_ = TorchApi::Get().IsPlainTensor(tensor) ? tensor : Holder(&tensor);
  return true;
}

bool TensorAccess::ReadAnyway() {
  if (!TorchApi::Get().IsTensor(pending_.get()) || TorchApi::Get().IsTracing(pending_.get()))
    return false;
  const QuietTorch quiet(pending_.get());
  holder_ = pending_.get();
  unreadable_.clear();
  const Fetch fetch = std::exchange(fetch_, Fetch::kNever);  // a copy would read it
  Read();
  fetch_ = fetch;
  on_device_ = false;
  if (!readable_ || keep_) Refuse();
  return readable_;
}

void TensorAccess::FetchNow() {
  const QuietTorch quiet(holder_);
  fetch_ = Fetch::kAlways;
  Read();
}

PyObject* TensorAccess::Holder(PyObject** tensor) {
  const TorchApi& torch = TorchApi::Get();
  if (std::string_view(Py_TYPE(*tensor)->tp_name).ends_with("NestedTensor"))
    type_ = "torch.nested._internal.nested_tensor.NestedTensor";
  if (IsDTensor(*tensor)) {
    type_ = "torch.distributed.tensor.DTensor";
    Layout layout = LayoutOf(*tensor);
    device_mesh_ = std::move(layout.device_mesh);
    placements_ = std::move(layout.placements);
    global_shape_ = std::move(layout.global_shape);
    inner_ = LocalShard(*tensor);
    if (!torch.IsTensor(inner_.get())) return nullptr;
    *tensor = inner_.get();
  }
  if (IsAsyncTensor(*tensor)) {
    if (device_mesh_.empty())
      type_ = "torch.distributed._functional_collectives.AsyncCollectiveTensor";
    if (!IsWaitedFor(*tensor)) {
      unreadable_ = kNotWaitedFor;
      pending_ = AsyncResult(*tensor);
      return nullptr;
    }
    result_ = AsyncResult(*tensor);
    if (!result_ || !torch.IsTensor(result_.get())) return nullptr;
    *tensor = result_.get();
  }
  // It has no data, and asking for its address would only log a warning.
  if (torch.IsTracing(*tensor)) {
    type_ = "torch._subclasses.fake_tensor.FakeTensor";
    return nullptr;
  }
  return *tensor;
}

bool TensorAccess::StaysOnDevice(bool on_host, DType dtype) {
  on_device_ = fetch_ == Fetch::kNothing || (fetch_ == Fetch::kNever && !on_host);
  if (on_device_) view_.dtype = dtype;
  return on_device_;
}

// The borrowed arrays of a view die with an in-place resize.
void TensorAccess::TakeShape(const TensorView& view) {
  ndim_ = view.ndim;
  std::copy_n(view.shape, ndim_, shape_.data());
  dtype_ = DTypeTorchName(view.dtype);
}

bool TensorAccess::ReadExchange(PyObject* tensor) {
  dlpack::DLTensor raw;
  if (TorchApi::Get().exchange->dltensor_from_py_object(tensor, &raw) != 0) {
    ClearError();
    return false;
  }
  std::optional<TensorView> view = dlpack::ToView(raw);
  if (!view || view->ndim > kMaxDims) return false;
  const bool on_host = raw.device.device_type == dlpack::kCpuDevice;
  if (!keep_) own_strides_.clear();
  if (!keep_ && view->strides != nullptr && !view->IsContiguous())
    own_strides_.assign(view->strides, view->strides + view->ndim);
  if (StaysOnDevice(on_host, view->dtype)) {
    TakeShape(*view);
    described_ = true;
    device_ = (static_cast<uint64_t>(raw.device.device_type) << 32) +
              static_cast<uint32_t>(raw.device.device_id) + 1;
    return false;
  }
  const DTypeKind kind = DTypeKindOf(view->dtype);
  const bool is_complex = kind == DTypeKind::kComplex;
  const TorchApi& torch = TorchApi::Get();
  const bool lazy = ((is_complex || kind == DTypeKind::kFloat) && torch.IsNegated(tensor)) ||
                    (is_complex && torch.IsConjugated(tensor));
  if (!keep_ && (!on_host || lazy)) {
    keep_ = Resolved(tensor);
    return keep_ && ReadExchange(keep_.get());
  }
  if (!on_host || (view->data == nullptr && view->numel() != 0) ||
      IsOffsetFromNull(tensor, view->data, view->dtype)) {
    return false;
  }
  TakeShape(*view);
  view_ = *view;
  view_.shape = shape_.data();
  if (view->strides != nullptr) {
    std::copy_n(view->strides, ndim_, strides_.data());
    view_.strides = strides_.data();
  }
  return true;
}

bool TensorAccess::ReadAttributes(PyObject* tensor) {
  PyRef device = PyRef::Steal(PyObject_GetAttrString(tensor, "device"));
  PyRef layout = PyRef::Steal(PyObject_GetAttrString(tensor, "layout"));
  ClearError();
  if (!device || !layout || StrOf(layout.get()) != "torch.strided" ||
      IsTrueMethod(tensor, "is_quantized"))
    return false;
  const std::string place = StrOf(device.get());
  if (place == "meta") return false;
  Describe(tensor);
  const std::optional<DType> dtype = DTypeFromTorchName(dtype_);
  if (!keep_) KeepStrides(tensor);
  if (dtype && StaysOnDevice(place == "cpu", *dtype)) return false;
  if (!keep_ && (place != "cpu" || TorchApi::Get().IsNegated(tensor) ||
                 TorchApi::Get().IsConjugated(tensor))) {
    keep_ = Resolved(tensor);
    return keep_ && ReadAttributes(keep_.get());
  }
  PyRef strides = CallMethod(tensor, "stride"), address = CallMethod(tensor, "data_ptr");
  if (!dtype || !strides || !address || ReadInts(strides.get(), strides_.data(), kMaxDims) != ndim_)
    return false;
  void* data = PyLong_AsVoidPtr(address.get());
  ClearError();
  view_ = {.data = data,
           .dtype = *dtype,
           .ndim = ndim_,
           .shape = shape_.data(),
           .strides = strides_.data()};
  return (data != nullptr && !IsOffsetFromNull(tensor, data, *dtype)) || view_.numel() == 0;
}

void TensorAccess::Slice(const dump::Slicer& slicer) {
  if (!readable_) return;
  if (keep_) {  // the same part of the tensor itself
    std::vector<int64_t> shape(shape_.begin(), shape_.begin() + ndim_);
    std::vector<int64_t> strides = own_strides_.empty() ? ContiguousStrides(shape) : own_strides_;
    TensorView own{.data = view_.data,
                   .dtype = view_.dtype,
                   .ndim = ndim_,
                   .shape = shape.data(),
                   .strides = strides.data()};
    slicer.Apply(&own, shape.data(), strides.data());
    own_strides_.clear();
    if (!own.IsContiguous()) own_strides_.assign(own.strides, own.strides + own.ndim);
  }
  slicer.Apply(&view_, shape_.data(), strides_.data());
}

void TensorAccess::Describe(PyObject* tensor) {
  PyRef shape = PyRef::Steal(PyObject_GetAttrString(tensor, "shape"));
  ClearError();
  ndim_ = shape ? std::max(0, ReadInts(shape.get(), shape_.data(), kMaxDims)) : 0;
  PyRef dtype = PyRef::Steal(PyObject_GetAttrString(tensor, "dtype"));
  ClearError();
  dtype_text_ = dtype ? StrOf(dtype.get()) : "unknown";
  dtype_ = dtype_text_;
}

void TensorAccess::KeepStrides(PyObject* tensor) {
  own_strides_.clear();
  const PyRef contiguous = CallMethod(tensor, "is_contiguous");
  if (contiguous.get() == Py_True) return;
  const PyRef strides = CallMethod(tensor, "stride");
  std::array<int64_t, kMaxDims> read;
  const int count = strides ? ReadInts(strides.get(), read.data(), kMaxDims) : -1;
  if (count > 0) own_strides_.assign(read.begin(), read.begin() + count);
}

std::span<const int64_t> TensorAccess::strides() const {
  if (keep_ || !readable_) return own_strides_;
  if (view_.strides == nullptr || view_.IsContiguous()) return {};
  return {view_.strides, static_cast<size_t>(view_.ndim)};
}

PyRef TensorAccess::Resolved(PyObject* tensor) const {
  const Interposer::Pause pause;  // the copy is no call of the program
  const QuietTransforms quiet;
  PyRef result = CallMethod(tensor, "detach");
  if (result) result = CallMethod(result.get(), "cpu");
  if (result) result = CallMethod(result.get(), "resolve_conj");
  if (result) result = CallMethod(result.get(), "resolve_neg");
  return result;
}

}  // namespace msprobe::capture
