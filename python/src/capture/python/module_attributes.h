// Attributes of modules, read without the code in Python that nn.Module has for look-ups.
//
//   for (const auto& [name, child] : Items(OwnAttribute(module, children_name)))
//       Visit(child.get());
//   if (Overrides(module, named_modules_name)) AskTheModuleItself();
#pragma once

#include <Python.h>

#include <utility>
#include <vector>

#include "capture/python/py_ref.h"

namespace msprobe::capture {

// Attribute `name` out of the object's own dict, or else the attribute as Python finds it. Null
// when there is none; no error is left set.
PyRef OwnAttribute(PyObject* object, PyObject* name);

// The (key, value) pairs of a dict, or of the mapping that a scripted module has in its place, in
// its order; none of null. A copy, because code that runs for a value may change the dict.
std::vector<std::pair<PyRef, PyRef>> Items(const PyRef& mapping);

// Whether the module, or its class, has another method `name` (interned) than torch.nn.Module.
bool Overrides(PyObject* module, PyObject* name);

}  // namespace msprobe::capture
