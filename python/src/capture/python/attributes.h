// Attributes and members of Python objects that may be missing: null says so, and no error is left.
// All functions need the GIL.
//
//   const PyRef states = Dict();
//   for (const PyRef& optimizer : Elements(Attribute(Loaded("train"), "optimizers").get()))
//     Set(states, StrOf(optimizer.get()), Call(optimizer, "state_dict"));
#pragma once

#include <Python.h>

#include <string>
#include <utility>
#include <vector>

#include "capture/python/py_ref.h"

namespace msprobe::capture {

// A module that the program has imported.
inline PyRef Loaded(const char* name) {
  PyRef module = PyRef::Borrow(PyDict_GetItemString(PyImport_GetModuleDict(), name));
  return module && module.get() != Py_None ? std::move(module) : PyRef();
}

// Null also where `object` is null.
inline PyRef Attribute(PyObject* object, const char* name) {
  PyRef found = object ? PyRef::Steal(PyObject_GetAttrString(object, name)) : PyRef();
  ClearError();
  return found;
}
inline PyRef Attribute(const PyRef& object, const char* name) {
  return Attribute(object.get(), name);
}

// What a method of no argument or one returns. Null also where it raised an error.
inline PyRef Call(PyObject* object, const char* method, PyObject* argument = nullptr) {
  const PyRef function = Attribute(object, method);
  PyRef result;
  if (function) {
    result = PyRef::Steal(argument ? PyObject_CallOneArg(function.get(), argument)
                                   : PyObject_CallNoArgs(function.get()));
  }
  ClearError();
  return result;
}
inline PyRef Call(const PyRef& object, const char* method) { return Call(object.get(), method); }

// The elements of a list or tuple, and of nothing else.
inline std::vector<PyRef> Elements(PyObject* sequence) {
  std::vector<PyRef> elements;
  if (sequence == nullptr || !(PyList_Check(sequence) || PyTuple_Check(sequence))) return elements;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); ++i)
    elements.push_back(PyRef::Borrow(PySequence_Fast_GET_ITEM(sequence, i)));
  return elements;
}

inline PyRef Dict() { return PyRef::Steal(PyDict_New()); }
// Leaves the dict as it is where there is no value.
inline void Set(const PyRef& dict, const std::string& key, const PyRef& value) {
  if (value) PyDict_SetItemString(dict.get(), key.c_str(), value.get());
}

}  // namespace msprobe::capture
