#include "capture/values/generator_state.h"

#include <string_view>

#include "capture/python/attributes.h"
#include "capture/python/torch_api.h"
#include "capture/values/tensor_access.h"
#include "engine/base/text.h"
#include "engine/kernels/stats.h"

namespace msprobe::capture {
namespace {

PyRef HostGenerator() {
  // Never destroyed: at exit the interpreter is gone before static destructors run.
  static const PyRef& generator = *new PyRef([] {
    const PyRef torch = Loaded("torch");
    PyRef found =
        torch ? PyRef::Steal(PyObject_GetAttrString(torch.get(), "default_generator")) : PyRef();
    ClearError();
    return found;
  }());
  return PyRef::Borrow(generator.get());
}

// `device`: a torch.device.
PyRef GeneratorOfDevice(PyObject* device) {
  const PyRef type = PyRef::Steal(PyObject_GetAttrString(device, "type"));
  ClearError();
  if (!type || Utf8(type.get()) == "cpu") return PyRef();
  const PyRef module = Loaded(("torch." + std::string(Utf8(type.get()))).c_str());
  const PyRef all =
      module ? PyRef::Steal(PyObject_GetAttrString(module.get(), "default_generators")) : PyRef();
  const PyRef index = PyRef::Steal(PyObject_GetAttrString(device, "index"));
  const Py_ssize_t at = index && PyLong_Check(index.get()) ? PyLong_AsSsize_t(index.get()) : 0;
  PyRef generator = all ? PyRef::Steal(PySequence_GetItem(all.get(), at)) : PyRef();
  ClearError();
  return generator;
}

PyObject* KeywordOf(const CallArgs& args, std::string_view name) {
  if (args.dict != nullptr) {
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(args.dict, &at, &key, &value);) {
      if (Utf8(key) == name) return value;
    }
    return nullptr;
  }
  const Py_ssize_t count = args.names == nullptr ? 0 : PyTuple_GET_SIZE(args.names);
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (Utf8(PyTuple_GET_ITEM(args.names, i)) == name) return args.positional[args.count + i];
  }
  return nullptr;
}

}  // namespace

PyRef DeviceGeneratorOf(PyObject* tensor) {
  const PyRef device = PyRef::Steal(PyObject_GetAttrString(tensor, "device"));
  ClearError();
  return device ? GeneratorOfDevice(device.get()) : PyRef();
}

PyRef GeneratorOf(const CallArgs& args) {
  PyObject* const given = KeywordOf(args, "generator");
  if (given != nullptr && given != Py_None) return PyRef::Borrow(given);
  PyRef generator;
  PyObject* const first = args.self != nullptr ? args.self
                          : args.count > 0     ? args.positional[0]
                                               : nullptr;
  if (first != nullptr && TorchApi::Get().IsTensor(first)) {
    generator = DeviceGeneratorOf(first);
  } else if (PyObject* const device = KeywordOf(args, "device"); device != nullptr) {
    generator = GeneratorOfDevice(device);
  }
  return generator ? std::move(generator) : HostGenerator();
}

void AppendGeneratorState(const PyRef& generator, std::string* out) {
  if (!generator) return;
  const PyRef state = PyRef::Steal(PyObject_CallMethod(generator.get(), "get_state", nullptr));
  ClearError();
  if (!state) return;
  const TensorAccess access(state.get());
  if (access.readable()) AppendHex(out, kernels::ComputeStats(access.view()).fingerprint, 16);
}

}  // namespace msprobe::capture
