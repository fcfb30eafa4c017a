// Calls of PyTorch by name, in a row: after the first failure every later result is null, and ok()
// is false.
//
//   TorchCalls torch;
//   const PyRef largest = torch.Call(torch.Call(tensor, "detach"), "max");
//   if (!torch.ok()) puts(torch.error().c_str());   // "RuntimeError: ..."
#pragma once

#include <Python.h>

#include <initializer_list>
#include <string>

#include "capture/python/py_ref.h"

namespace msprobe::capture {

// Leaves no Python error set.
class TorchCalls {
 public:
  TorchCalls() : torch_(PyRef::Borrow(Module())) {}
  ~TorchCalls() { ClearError(); }
  TorchCalls(const TorchCalls&) = delete;
  TorchCalls& operator=(const TorchCalls&) = delete;

  const PyRef& torch() const { return torch_; }
  PyRef Get(const PyRef& object, const char* name) {
    return Checked(object && ok_ ? PyObject_GetAttrString(object.get(), name) : nullptr);
  }
  PyRef Constant(const char* name) { return Get(torch_, name); }  // of the module torch
  // object.method(arguments...), without null arguments.
  template <typename... Arguments>
  PyRef Call(const PyRef& object, const char* method, const Arguments&... arguments) {
    return With(Get(object, method), nullptr, arguments...);
  }
  // The same with one keyword.
  template <typename... Arguments>
  PyRef CallWith(const char* keyword, PyObject* value, const PyRef& object, const char* method,
                 const Arguments&... arguments) {
    const PyRef names = PyRef::Steal(ok_ ? PyDict_New() : nullptr);
    if (!names || PyDict_SetItemString(names.get(), keyword, value) != 0) return Checked(nullptr);
    return With(Get(object, method), names.get(), arguments...);
  }
  // The same for calls that are made for each tensor. `method`: an interned name (Interned).
  template <typename... Arguments>
  PyRef CallFast(PyObject* object, PyObject* method, const Arguments&... arguments) {
    if (!ok_ || object == nullptr || !(true && ... && static_cast<bool>(arguments)))
      return Checked(nullptr);
    PyObject* const all[] = {object, arguments.get()...};
    return Checked(PyObject_VectorcallMethod(method, all, (1 + sizeof...(arguments)), nullptr));
  }
  PyRef Function(const char* name, const PyRef& argument) { return Call(torch_, name, argument); }
  PyRef List(std::initializer_list<const PyRef*> items) {
    PyRef list = PyRef::Steal(PyList_New(0));
    for (const PyRef* item : items) {
      if (!*item || !list || PyList_Append(list.get(), item->get()) != 0) return Checked(nullptr);
    }
    return list;
  }
  // Takes note of a failure, a null result. Steals the reference.
  PyRef Checked(PyObject* result) {
    if (ok_ && result == nullptr) {
      ok_ = false;
      const KeepError raised;
      error_ = raised.text();
    }
    if (result == nullptr) ClearError();
    return PyRef::Steal(result);
  }
  bool ok() const { return ok_; }
  // Why the first failure came.
  const std::string& error() const { return error_; }

 private:
  template <typename... Arguments>
  PyRef With(const PyRef& function, PyObject* names, const Arguments&... arguments) {
    if (!ok_ || !function || !(true && ... && static_cast<bool>(arguments)))
      return Checked(nullptr);
    const PyRef all = PyRef::Steal(PyTuple_Pack(sizeof...(arguments), arguments.get()...));
    return Checked(all ? PyObject_Call(function.get(), all.get(), names) : nullptr);
  }
  static PyObject* Module() {
    static PyObject* const module = PyImport_ImportModule("torch");  // for ever
    return module;
  }

  PyRef torch_;
  bool ok_ = true;
  std::string error_;
};

// A name for CallFast, for ever.
//
//   static PyObject* const name = Interned("copy_");
inline PyObject* Interned(const char* name) { return PyUnicode_InternFromString(name); }

// A number of Python; -1 without one.
inline int64_t NumberOf(const PyRef& value) {
  const int64_t number = value ? PyLong_AsLongLong(value.get()) : -1;
  ClearError();
  return number;
}

}  // namespace msprobe::capture
