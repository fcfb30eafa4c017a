#include "capture/python/torch_framework.h"

#include "capture/python/cpp_tensor.h"
#include "capture/python/framework.h"
#include "capture/python/loaded_library.h"
#include "capture/python/torch_api.h"

namespace msprobe::capture {
namespace {

struct Names {
  PyObject* sequence = PyUnicode_InternFromString("_sequence_nr");
  PyObject* variable = PyUnicode_InternFromString("variable");
  PyObject* detach = PyUnicode_InternFromString("detach");
};
const Names& names() {
  static const Names instance;
  return instance;
}

class TorchFramework final : public Framework {
 public:
  TorchFramework() : Framework(/*is_torch=*/true) {
    name = "pytorch";
    title = "PyTorch";
    module_prefix = "Module.";
    tensor_suffix = ".pt";
    named_buffers = "named_buffers";
  }

  void Read(PyObject*, HostArray*) const override {}  // TensorAccess reads them
  std::optional<std::pair<std::string_view, std::string>> Describe(PyObject* value) const override {
    const TorchApi& torch = TorchApi::Get();
    PyTypeObject* type = Py_TYPE(value);
    if (type == torch.dtype) return std::pair("torch.dtype", StrOf(value));
    if (type == torch.device) return std::pair("torch.device", StrOf(value));
    return std::nullopt;
  }

  bool RequiresGrad(PyObject* tensor) const override {
    return TorchApi::Get().RequiresGrad(tensor);
  }
  bool ParameterRequiresGrad(PyObject* parameter) const override { return RequiresGrad(parameter); }
  PyRef GradNode(PyObject* tensor) const override {
    PyRef node = PyRef::Steal(TorchApi::Get().grad_fn(tensor));
    if (!node) ClearError();
    return node && node.get() != Py_None ? std::move(node) : PyRef();
  }
  int64_t OutputNumber(PyObject* tensor) const override {
    const CppTensor& cpp = CppTensor::Get();
    if (cpp.is_known()) return cpp.OutputNumber(tensor);
    const PyRef number = PyRef::Steal(TorchApi::Get().output_number(tensor));
    const int64_t value = number ? PyLong_AsLongLong(number.get()) : -1;
    ClearError();
    return value;
  }
  uintptr_t NodeKey(PyObject* node) const override { return reinterpret_cast<uintptr_t>(node); }
  bool IsLeafNode(PyObject* node) const override {
    return std::string_view(Py_TYPE(node)->tp_name).ends_with("AccumulateGrad");
  }
  PyRef TensorOfLeafNode(PyObject* node) const override {
    PyRef tensor = PyRef::Steal(PyObject_GetAttr(node, names().variable));
    ClearError();
    return tensor;
  }
  bool IsPythonNode(PyObject* node) const override { return TorchApi::Get().IsPythonNode(node); }
  uint64_t SequenceOf(PyObject* node) const override {
    const PyRef number = PyRef::Steal(PyObject_CallMethodNoArgs(node, names().sequence));
    const uint64_t value = number ? PyLong_AsUnsignedLongLongMask(number.get()) : UINT64_MAX;
    ClearError();
    return value;
  }
  uint64_t NextSequence() const override {
    PyObject* const function = TorchApi::Get().sequence_number;
    if (function == nullptr) return 0;
    static uint64_t (*const peek)() = [] {  // what the function calls
      uint64_t (*found)() = nullptr;
      FindLoaded(&found, "libtorch_cpu.so", "_ZN2at15sequence_number4peekEv");
      return found;
    }();
    if (peek != nullptr) return peek();
    const PyRef number = PyRef::Steal(PyObject_CallNoArgs(function));
    const uint64_t value = number ? PyLong_AsUnsignedLongLongMask(number.get()) : 0;
    ClearError();
    return value;
  }
  PyRef Sum(PyObject* a, PyObject* b) const override {
    // Detached, so that our addition is not part of the graph of backward(create_graph=True).
    const PyRef first = PyRef::Steal(PyObject_CallMethodNoArgs(a, names().detach));
    const PyRef second = PyRef::Steal(PyObject_CallMethodNoArgs(b, names().detach));
    PyRef sum = first && second ? PyRef::Steal(PyNumber_Add(first.get(), second.get())) : PyRef();
    ClearError();
    return sum;
  }
  // parameter_hooks.cc registers hooks of PyTorch in ways of its own.
  PyRef HookGradient(PyObject*, PyObject*) const override { return PyRef(); }
  void Unhook(PyObject*) const override {}
};

TorchFramework& Torch() {
  static auto* torch = new TorchFramework;
  return *torch;
}

}  // namespace

const Framework* Framework::current_ = &Torch();

Status LoadTorch() {
  MSPROBE_RETURN_IF_ERROR(TorchApi::Load());
  Torch().tensor_type = TorchApi::Get().tensor_base;
  Framework::Use(&Torch());
  return Status::Ok();
}

}  // namespace msprobe::capture
