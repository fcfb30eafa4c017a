// A NumPy array as a view, through Python's buffer protocol: NumPy is neither linked nor imported.
//
//   NumpyArray array(object);
//   if (array.readable()) Stats s = ComputeStats(array.view());
#pragma once

#include <Python.h>

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "capture/python/py_ref.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe::capture {

class NumpyArray {
 public:
  static bool IsArray(PyObject* object);

  // `array` is borrowed and must outlive this object. Never leaves a Python error set.
  explicit NumpyArray(PyObject* array);
  ~NumpyArray();
  NumpyArray(const NumpyArray&) = delete;
  NumpyArray& operator=(const NumpyArray&) = delete;

  // False for elements that are not numbers (text, dates, objects, records), for numbers in the
  // byte order of another machine, and for long double.
  bool readable() const { return readable_; }
  const TensorView& view() const { return view_; }  // when readable
  std::string_view type() const { return "numpy.ndarray"; }
  std::string_view dtype() const { return dtype_; }  // "float32", "<U1"
  std::span<const int64_t> shape() const { return {shape_.data(), static_cast<size_t>(ndim_)}; }

 private:
  static constexpr int kMaxDims = 64;
  bool Read(PyObject* array);
  void Describe(PyObject* array);

  Py_buffer buffer_ = {};
  PyRef copy_;  // made when the elements are not aligned
  TensorView view_;
  int ndim_ = 0;
  bool readable_ = false;
  std::string dtype_;
  std::array<int64_t, kMaxDims> shape_, strides_;
};

}  // namespace msprobe::capture
