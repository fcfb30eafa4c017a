// A tensor of a framework other than PyTorch (tensor_access.h), as a view of its own memory.
//
//   FrameworkTensor array(object);
//   if (array.readable()) Stats s = ComputeStats(array.view());
#pragma once

#include <Python.h>

#include <span>
#include <string>
#include <string_view>

#include "capture/python/framework.h"
#include "engine/dump/config/slice_rules.h"

namespace msprobe::capture {

class FrameworkTensor {
 public:
  // `tensor` is borrowed and must outlive this object. Never leaves a Python error set.
  explicit FrameworkTensor(PyObject* tensor) { Framework::Get().Read(tensor, &array_); }
  FrameworkTensor(const FrameworkTensor&) = delete;
  FrameworkTensor& operator=(const FrameworkTensor&) = delete;

  // Narrows the view to the selected part.
  void Slice(const dump::Slicer& slicer) {
    if (!array_.readable) return;
    if (array_.view.strides == nullptr) {
      int64_t stride = 1;
      for (int i = array_.ndim - 1; i >= 0; --i) {
        array_.strides[static_cast<size_t>(i)] = stride;
        stride *= array_.shape[static_cast<size_t>(i)];
      }
      array_.view.strides = array_.strides.data();
    }
    slicer.Apply(&array_.view, array_.shape.data(), array_.strides.data());
  }

  bool readable() const { return array_.readable; }
  const TensorView& view() const { return array_.view; }  // when readable
  std::string_view type() const { return "mindspore.Tensor"; }
  std::string_view dtype() const { return array_.dtype; }  // "Float32"
  std::span<const int64_t> shape() const {
    return {array_.shape.data(), static_cast<size_t>(array_.ndim)};
  }
  const std::string& unreadable() const { return array_.unreadable; }

 private:
  HostArray array_;
};

}  // namespace msprobe::capture
