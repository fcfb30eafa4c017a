// Makes a TensorView of a Python tensor, for every version of PyTorch: through DLPack's exchange
// table where there is one (tens of nanoseconds), otherwise through attributes.
//
//   TensorAccess t(object);
//   if (t.readable()) Stats s = ComputeStats(t.view());
#pragma once

#include <Python.h>

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "capture/python/py_ref.h"
#include "engine/dump/config/slice_rules.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe::capture {

// Whether elements that lie on a device are copied to the host.
enum class Fetch : uint8_t {
  kAlways,
  kNever,    // they stay on the device: readable() is false, on_device() is true
  kNothing,  // the host, too, is treated as a device: for tests
};

class TensorAccess {
 public:
  static constexpr int kMaxDims = 64;

  // `tensor` is borrowed and must outlive this object. Never leaves a Python error set.
  explicit TensorAccess(PyObject* tensor, Fetch fetch = Fetch::kAlways);
  TensorAccess(const TensorAccess&) = delete;
  TensorAccess& operator=(const TensorAccess&) = delete;

  // Narrows the view to the selected part. Has no effect on a tensor that is not readable.
  void Slice(const dump::Slicer& slicer);

  // False for tensors whose elements cannot be read as a strided array on the host (sparse,
  // quantized, meta, nested, ...).
  bool readable() const { return readable_; }
  bool on_device() const { return on_device_; }  // the elements stayed on their device
  void FetchNow();                               // copies them to the host after all
  // A number that tensors of this device have, and no others; 0: not known. Valid when on_device.
  uint64_t device() const { return device_; }
  // An AsyncCollectiveTensor that does not know that it was waited for: it is not readable.
  bool awaits() const { return pending_ && !readable_; }
  // Reads it as if it had been waited for: whoever knows what is in flight decides whether it may
  // be used (values_in_flight.h). False: it has no readable tensor inside.
  bool ReadAnyway();
  void Await() { unreadable_ = kNotWaitedFor; }  // readable() stays: it will be, after the wait
  void Refuse() { readable_ = false, unreadable_ = kNotWaitedFor; }
  PyObject* holder() const { return holder_; }        // the tensor that has the elements
  DType element_type() const { return view_.dtype; }  // valid when readable or on_device
  const TensorView& view() const { return view_; }    // valid when readable
  // Of the tensor itself, where `view` shows a copy of it or there is no view; in elements. Empty:
  // contiguous.
  std::span<const int64_t> strides() const;
  PyObject* resolved() const { return keep_.get(); }  // the copy that `view` shows; null: no copy
  std::string_view dtype() const { return dtype_; }   // "torch.float32", "torch.qint8"
  std::span<const int64_t> shape() const { return {shape_.data(), static_cast<size_t>(ndim_)}; }
  // Of a DTensor, as JSON; "" for other tensors. Everything else describes the local shard.
  const std::string& device_mesh() const { return device_mesh_; }
  const std::string& placements() const { return placements_; }
  const std::string& global_shape() const { return global_shape_; }
  // Dimensions of `shape` over which torch.func.vmap batches, that of the outermost vmap first.
  // What is recorded of a tensor inside torch.func is the tensor that it wraps.
  const std::vector<int64_t>& batch_dims() const { return batch_dims_; }
  const std::string& unreadable() const { return unreadable_; }  // why: "meta tensor"; "" otherwise
  // The name under "type" in dump.json: "torch.Tensor" for plain tensors and most subclasses.
  std::string_view type() const { return type_; }

 private:
  static constexpr const char* kNotWaitedFor = "not waited for";
  bool StaysOnDevice(bool on_host, DType dtype);
  void TakeShape(const TensorView& view);
  void Read();
  // True when the holder was a wrapper of torch.func and is now the tensor inside.
  bool EnterTransforms();
  bool ReadExchange(PyObject* tensor);
  bool ReadAttributes(PyObject* tensor);
  // Returns the tensor whose elements are read, null when there is none. `*tensor` becomes the
  // tensor whose shape and dtype are recorded.
  PyObject* Holder(PyObject** tensor);
  void Describe(PyObject* tensor);         // shape and dtype only
  void KeepStrides(PyObject* tensor);      // those of a tensor whose elements are read elsewhere
  PyRef Resolved(PyObject* tensor) const;  // the tensor without conj or neg bit, on the host

  PyRef wrapped_;  // of a tensor inside torch.func: the tensor that it wraps
  PyRef inner_;    // of a DTensor: the local shard
  PyRef result_;   // of an AsyncCollectiveTensor: the tensor inside
  PyRef pending_;  // of one that is not known to be complete: the tensor inside
  PyRef keep_;     // a copy that was made for reading
  TensorView view_;
  int ndim_ = 0;
  Fetch fetch_;
  PyObject* holder_ = nullptr;
  bool readable_ = false, on_device_ = false;
  bool described_ = false;  // shape and dtype are known, although the elements cannot be read
  uint64_t device_ = 0;
  std::array<int64_t, kMaxDims> shape_;
  std::array<int64_t, kMaxDims> strides_;
  std::vector<int64_t> batch_dims_, own_strides_;
  std::string dtype_text_, device_mesh_, placements_, global_shape_, unreadable_;
  std::string_view dtype_, type_ = "torch.Tensor";
};

}  // namespace msprobe::capture
