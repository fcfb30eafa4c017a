// The types and functions of PyTorch that the capture code uses, looked up once. No PyTorch library
// is linked, and no header of PyTorch is included.
//
//   MSPROBE_RETURN_IF_ERROR(TorchApi::Load());        // after `import torch`
//   const TorchApi& torch = TorchApi::Get();
//   if (torch.IsTensor(object)) Use(object);
#pragma once

#include <Python.h>

#include <cstdint>

#include "engine/base/status.h"
#include "engine/tensor/dlpack.h"

namespace msprobe::capture {

// An attribute of a type that is implemented in C: read without a dictionary look-up.
class FastGetter {
 public:
  // Finds the getset descriptor `name` in the type's MRO. A subclass that overrides the attribute
  // is not asked.
  bool Load(PyTypeObject* type, const char* name);
  PyObject* operator()(PyObject* object) const { return get_(object, closure_); }  // new reference

 private:
  getter get_ = nullptr;
  void* closure_ = nullptr;
};

// A method without arguments that is implemented in C: called without a look-up, and not observed
// by our own swapped pointers.
class FastMethod {
 public:
  bool Load(PyTypeObject* type, const char* name);
  PyObject* operator()(PyObject* object) const { return call_(object, nullptr); }  // new reference

 private:
  PyCFunction call_ = nullptr;
};

// While an object of this class lives, our uses of PyTorch on this thread reach neither a
// TorchFunctionMode of the program nor the __torch_function__ of a tensor subclass. Costs nothing
// when neither is in use.
class QuietTorch {
 public:
  QuietTorch();                           // for uses where a mode may be active
  explicit QuietTorch(PyObject* tensor);  // for uses of a tensor that may be of a subclass
  ~QuietTorch();
  QuietTorch(const QuietTorch&) = delete;
  QuietTorch& operator=(const QuietTorch&) = delete;

 private:
  void Begin();
  PyObject* guard_ = nullptr;
};

// Whether a transform of torch.func runs on this thread.
bool TransformsAreActive();

// While an object of this class lives, our operations on this thread pass by the transforms of
// torch.func that run (vmap, grad, jvp): they neither make wrapped tensors nor take part in a
// derivative. Costs one call when no transform runs.
class QuietTransforms {
 public:
  QuietTransforms();
  ~QuietTransforms();
  QuietTransforms(const QuietTransforms&) = delete;
  QuietTransforms& operator=(const QuietTransforms&) = delete;

 private:
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
  bool (*asks_function_mode)() = nullptr;  // the same, past Python; null where it is not found
  PyObject* disable_function = nullptr;    // torch._C.DisableTorchFunction
  PyObject* sequence_number = nullptr;  // torch._C._autograd._get_sequence_nr; null in old versions
  PyObject* storage_weak_ref = nullptr;  // torch.multiprocessing.reductions.StorageWeakRef, or null
  // Functions of torch._C._functorch; all null in versions that lack one of them.
  struct Transforms {
    PyObject* is_batched = nullptr;     // is_batchedtensor: a tensor that vmap has wrapped
    PyObject* is_tracked = nullptr;     // is_gradtrackingtensor: one that grad or jvp has wrapped
    PyObject* is_functional = nullptr;  // is_functionaltensor
    PyObject* unwrapped = nullptr;      // get_unwrapped: the tensor one level further inside
    PyObject* batch_dim = nullptr;      // maybe_get_bdim
    PyObject* active = nullptr;         // torch._C._are_functorch_transforms_active
    PyObject* disable = nullptr;        // torch._C._DisableFuncTorch
  };
  Transforms transforms;
  FastGetter requires_grad, grad_fn, output_number, grad;
  FastMethod is_neg, is_conj, storage_offset;
  // Which memory a tensor shows; usable when tells_storages() (from PyTorch 2.0 on).
  FastGetter storage_address;  // UntypedStorage._cdata
  FastMethod untyped_storage, storage_weak;
  FastMethod
      storage_resizable;  // UntypedStorage.resizable: false for memory that PyTorch does not own
  PyObject* free_storage_weak = nullptr;    // UntypedStorage._free_weak_ref
  dlpack::ExchangeApi* exchange = nullptr;  // null: PyTorch before 2.9, attributes are used

  bool IsTensor(PyObject* object) const { return PyObject_TypeCheck(object, tensor_base); }
  // Exactly torch.Tensor or Parameter, not a subclass, which may stand for another tensor.
  bool IsPlainTensor(PyObject* object) const {
    return Py_TYPE(object) == tensor || Py_TYPE(object) == parameter;
  }
  bool tells_storages() const { return free_storage_weak != nullptr; }
  // A tensor without data, which stands for another tensor while a compiler traces.
  bool IsTracing(PyObject* object) const {
    return (fake_tensor && PyObject_TypeCheck(object, fake_tensor)) ||
           (functional_tensor && PyObject_TypeCheck(object, functional_tensor));
  }
  // Whether the node belongs to an autograd.Function, whose backward is Python code.
  bool IsPythonNode(PyObject* node) const {
    return python_node == nullptr || PyObject_TypeCheck(node, python_node);
  }
  bool RequiresGrad(PyObject* tensor_object) const;
  // How often the tensor was changed in place. -1: nobody counts (a tensor of inference mode).
  int64_t VersionOf(PyObject* tensor_object) const;
  // The tensor's memory holds the conjugate, or the negative, of its elements; resolve_conj() and
  // resolve_neg() make a copy with the elements themselves.
  bool IsNegated(PyObject* tensor_object) const;
  bool IsConjugated(PyObject* tensor_object) const;

  // For VersionOf.
  FastGetter version;
  FastMethod is_inference;
  bool counts_versions = false;  // whether both were found
};

}  // namespace msprobe::capture
