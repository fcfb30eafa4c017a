// What the capture code needs of PyTorch, looked up once: no PyTorch library is linked, no header
// of it is used.
//
//   MSPROBE_RETURN_IF_ERROR(TorchApi::Load());        // after `import torch`
//   const TorchApi& torch = TorchApi::Get();
//   if (torch.IsTensor(object)) Use(object);
#pragma once

#include <Python.h>

#include "engine/base/status.h"
#include "engine/tensor/dlpack.h"

namespace msprobe::capture {

// An attribute of a type that C code implements: called without a dictionary look-up.
class FastGetter {
 public:
  // The getset descriptor `name` in the type's MRO; a later subclass that overrides it is not
  // asked.
  bool Load(PyTypeObject* type, const char* name);
  PyObject* operator()(PyObject* object) const { return get_(object, closure_); }  // new reference

 private:
  getter get_ = nullptr;
  void* closure_ = nullptr;
};

// A method without arguments that C code implements: called without a look-up, and never seen by
// whoever observes calls.
class FastMethod {
 public:
  bool Load(PyTypeObject* type, const char* name);
  PyObject* operator()(PyObject* object) const { return call_(object, nullptr); }  // new reference

 private:
  PyCFunction call_ = nullptr;
};

// While one of these lives, what this thread asks PyTorch does not reach a TorchFunctionMode of the
// program's, or a tensor subclass's __torch_function__. Nothing is done where neither is in sight.
class QuietTorch {
 public:
  QuietTorch();                           // a mode may be active
  explicit QuietTorch(PyObject* tensor);  // may be of a subclass
  ~QuietTorch();
  QuietTorch(const QuietTorch&) = delete;
  QuietTorch& operator=(const QuietTorch&) = delete;

 private:
  void Begin();
  PyObject* guard_ = nullptr;
};

struct TorchApi {
  static Status Load();
  static const TorchApi& Get();

  PyTypeObject* tensor_base = nullptr;  // torch._C.TensorBase
  PyTypeObject* tensor = nullptr;       // torch.Tensor
  PyTypeObject* parameter = nullptr;    // torch.nn.Parameter
  PyTypeObject* fake_tensor = nullptr;  // torch._subclasses.FakeTensor; null in old versions
  PyTypeObject* functional_tensor = nullptr;
  PyTypeObject* python_node = nullptr;  // torch._C._FunctionBase: nodes of autograd.Function
  PyTypeObject* size = nullptr;         // torch.Size
  PyTypeObject* dtype = nullptr;
  PyTypeObject* device = nullptr;
  PyTypeObject* memory_format = nullptr;
  PyObject* function_mode_enabled =
      nullptr;  // torch._C._is_torch_function_mode_enabled; null in old versions
  PyObject* disable_function = nullptr;  // torch._C.DisableTorchFunction
  PyObject* sequence_number = nullptr;  // torch._C._autograd._get_sequence_nr; null in old versions
  FastGetter requires_grad, grad_fn, output_number, grad;
  FastMethod is_neg, is_conj;
  dlpack::ExchangeApi* exchange = nullptr;  // null: PyTorch before 2.9, attributes are used

  bool IsTensor(PyObject* object) const { return PyObject_TypeCheck(object, tensor_base); }
  // Exactly torch.Tensor or Parameter: no subclass that may answer for another tensor.
  bool IsPlainTensor(PyObject* object) const {
    return Py_TYPE(object) == tensor || Py_TYPE(object) == parameter;
  }
  // A tensor without data that stands for another one while a compiler traces.
  bool IsTracing(PyObject* object) const {
    return (fake_tensor && PyObject_TypeCheck(object, fake_tensor)) ||
           (functional_tensor && PyObject_TypeCheck(object, functional_tensor));
  }
  // Its backward is Python code.
  bool IsPythonNode(PyObject* node) const {
    return python_node == nullptr || PyObject_TypeCheck(node, python_node);
  }
  bool RequiresGrad(PyObject* tensor_object) const;
  // Its memory holds other numbers than it stands for, until resolved.
  bool IsNegated(PyObject* tensor_object) const;
  bool IsConjugated(PyObject* tensor_object) const;
};

}  // namespace msprobe::capture
