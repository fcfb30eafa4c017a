// A tensor of a framework other than PyTorch (tensor_access.h), as a view of its own memory.
//
//   FrameworkTensor array(object);
//   if (array.readable()) Stats s = ComputeStats(array.view());
//   FrameworkTensor inside(view, MeasureWithoutGil(view, asked));   // of a compiled graph
#pragma once

#include <Python.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "capture/python/framework.h"
#include "capture/values/known_numbers.h"
#include "capture/values/numpy_array.h"
#include "engine/dump/config/slice_rules.h"

namespace msprobe::capture {

class FrameworkTensor {
 public:
  // `tensor` or `array` is borrowed and must outlive this object. Never leaves a Python error set.
  explicit FrameworkTensor(PyObject* tensor) { Framework::Get().Read(tensor, &array_); }
  // A tensor that a compiled graph hands over as an array.
  explicit FrameworkTensor(const NumpyArray& array) {
    const auto count = std::min(array.shape().size(), array_.shape.size());
    array_.ndim = static_cast<int>(count);
    std::copy_n(array.shape().begin(), count, array_.shape.begin());
    array_.readable = array.readable();
    array_.dtype = array.readable() ? Framework::Get().NameOf(array.view().dtype) : array.dtype();
    if (!array_.readable) {
      array_.unreadable = "elements of this dtype are not read";
      return;
    }
    array_.view = array.view();
    std::copy_n(array_.view.strides, count, array_.strides.begin());
    array_.view.shape = array_.shape.data();
    array_.view.strides = array_.strides.data();
  }
  // A tensor in the memory of a compiled graph: contiguous, and measured already. Needs no GIL.
  FrameworkTensor(const TensorView& view, KnownNumbers::Numbers measured) : measured_(measured) {
    array_.ndim = view.ndim;
    std::copy_n(view.shape, view.ndim, array_.shape.begin());
    array_.readable = true;
    array_.dtype = Framework::Get().NameOf(view.dtype);
    array_.view = view;
    array_.view.shape = array_.shape.data();
  }
  FrameworkTensor(const FrameworkTensor&) = delete;
  FrameworkTensor& operator=(const FrameworkTensor&) = delete;

  // Narrows the view to the selected part.
  void Slice(const dump::Slicer& slicer) {
    if (!array_.readable) return;
    measured_.reset();
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
  // The numbers of the elements, where they are known; else null.
  const KnownNumbers::Numbers* measured() const { return measured_ ? &*measured_ : nullptr; }

 private:
  HostArray array_;
  std::optional<KnownNumbers::Numbers> measured_;
};

}  // namespace msprobe::capture
