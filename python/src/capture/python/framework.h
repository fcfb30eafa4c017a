// The framework that the program trains with: what the recording asks of it where PyTorch and
// MindSpore differ. The code that records a call, its values and its gradients is the same for
// both.
//
//   const Framework& framework = Framework::Get();
//   if (framework.IsTensor(object) && framework.RequiresGrad(object))
//     node = framework.GradNode(object).release();
#pragma once

#include <Python.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "capture/python/py_ref.h"
#include "engine/base/status.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe::capture {

// The elements of a tensor as a strided array of the host.
struct HostArray {
  static constexpr int kMaxDims = 64;
  TensorView view;         // points into `shape` and `strides`
  bool readable = false;   // false: only `dtype` and `shape` are set
  std::string unreadable;  // then: why
  std::string_view dtype;  // as the framework spells it: "Float32"
  std::string dtype_text;  // its memory, for a dtype that we do not know
  int ndim = 0;
  std::array<int64_t, kMaxDims> shape, strides;
  PyRef keep;  // what owns the elements, if that is a copy
};

// A graph of gradients has nodes; a node computes from the gradients of its results the gradients
// of its arguments, and hands them to the nodes of `next_functions`, a tuple of (node, number of
// that node's result). Hooks on a node see both (node_hooks.h). None of the functions leaves a
// Python error set.
class Framework {
 public:
  static const Framework& Get() { return *current_; }
  static void Use(const Framework* framework) { current_ = framework; }  // never destroyed

  std::string_view name;           // in the header of dump.json: "pytorch"
  std::string_view title;          // in messages: "PyTorch"
  std::string_view module_prefix;  // the first word of the entry names of modules: "Module."
  std::string_view tensor_suffix;  // of tensor files: ".pt"
  // Attributes of a module: the dicts of the modules inside and of its parameters.
  const char* children = "_modules";
  const char* parameters = "_parameters";
  const char* callables = nullptr;  // callable objects of the module that are APIs; null: none
  // Attribute of these objects: a dict of the arguments that they were constructed with; null:
  // none.
  const char* made_with = nullptr;
  const char* named_buffers = nullptr;  // methods that yield (name, tensor)
  const char* named_parameters = "named_parameters";
  PyTypeObject* tensor_type = nullptr;  // null before PyTorch was looked up
  // Whether HookGradient costs less than a hook on a node, and a hook on a node more than our work.
  bool cheap_tensor_hooks = false;

  bool IsTensor(PyObject* object) const {
    return tensor_type != nullptr && PyObject_TypeCheck(object, tensor_type);
  }
  bool is_torch() const { return is_torch_; }

  // Of a framework other than PyTorch, whose tensors TensorAccess reads.
  virtual void Read(PyObject* tensor, HostArray* array) const = 0;
  // {"type": "mindspore.dtype", "value": "Int32"}, of an object of the framework itself; nullopt:
  // it has no such form.
  virtual std::optional<std::pair<std::string_view, std::string>> Describe(
      PyObject* value) const = 0;

  // A dtype as the framework spells it; "" for PyTorch.
  virtual std::string_view NameOf(DType) const { return ""; }

  virtual bool RequiresGrad(PyObject* tensor) const = 0;
  virtual bool ParameterRequiresGrad(PyObject* parameter) const = 0;
  // The node that made a tensor, null when no graph has one; and the number of the tensor among the
  // results of that node, -1 when it is not known.
  virtual PyRef GradNode(PyObject* tensor) const = 0;
  virtual int64_t OutputNumber(PyObject* tensor) const = 0;
  // Equal for two objects that stand for the same node.
  virtual uintptr_t NodeKey(PyObject* node) const = 0;
  // Whether the node takes the gradient of a tensor that no other node made, as that of a
  // parameter.
  virtual bool IsLeafNode(PyObject* node) const = 0;
  virtual PyRef TensorOfLeafNode(PyObject* node) const = 0;
  // Whether a Python function of the program computes the node's gradients.
  virtual bool IsPythonNode(PyObject* node) const = 0;
  // Grows from each node to those that are made later.
  virtual uint64_t SequenceOf(PyObject* node) const = 0;
  // Nodes that are made from now on have this number or a higher one; 0: not known.
  virtual uint64_t NextSequence() const = 0;
  // The sum of two shares of a gradient, outside of every graph; null when they cannot be added.
  virtual PyRef Sum(PyObject* a, PyObject* b) const = 0;
  // Calls `hook(gradient)` when the gradient of a tensor is complete; null when that is not
  // possible. Unhook takes the result.
  virtual PyRef HookGradient(PyObject* tensor, PyObject* hook) const = 0;
  virtual void Unhook(PyObject* handle) const = 0;

 protected:
  explicit Framework(bool is_torch) : is_torch_(is_torch) {}
  ~Framework() = default;

 private:
  const bool is_torch_;
  static const Framework* current_;
};

}  // namespace msprobe::capture
