// What PyTorch's own functions say of the C++ tensor inside a Python tensor. Asked through Python,
// each answer takes 60 to 110 ns, and is_neg() lends the GIL to other threads.
//
//   const CppTensor& cpp = CppTensor::Get();
//   if (cpp.is_known()) Use(cpp.RequiresGrad(tensor));
#pragma once

#include <Python.h>

#include <cstdint>

namespace msprobe::capture {

class CppTensor {
 public:
  // Looked up at the first call, which is to come after `import torch`.
  static const CppTensor& Get();

  // Whether the other functions may be called: this PyTorch has the layout that is known.
  bool is_known() const { return requires_grad_ != nullptr; }
  // `tensor` is of torch.Tensor or of a subclass.
  bool RequiresGrad(PyObject* tensor) const { return requires_grad_(Of(tensor)->implementation); }
  bool IsNegated(PyObject* tensor) const { return is_neg_(&Of(tensor)->implementation); }
  int64_t OutputNumber(PyObject* tensor) const {
    return output_number_(&Of(tensor)->implementation);
  }

 private:
  // struct THPVariable of torch/csrc/autograd/python_variable.h. An at::Tensor is one pointer, to
  // its c10::TensorImpl.
  struct PythonTensor {
    PyObject_HEAD void* implementation;
  };
  static PythonTensor* Of(PyObject* tensor) { return reinterpret_cast<PythonTensor*>(tensor); }

  bool (*requires_grad_)(const void* implementation) = nullptr;
  bool (*is_neg_)(const void* cpp_tensor) = nullptr;
  int64_t (*output_number_)(const void* cpp_tensor) = nullptr;
};

}  // namespace msprobe::capture
