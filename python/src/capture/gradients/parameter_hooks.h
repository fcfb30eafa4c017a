// Hooks on parameters, called when backward() has completed the gradient of a parameter. They are
// registered in C++, because each start() registers them anew for all parameters of the model.
//
//   ParameterHooks::Add(parameter, module, "weight", &observer);
//   ParameterHooks::RemoveAll();                                  // before modules are forgotten
#pragma once

#include <Python.h>

#include <string>

#include "capture/python/py_ref.h"

namespace msprobe::capture {

// What lies in .grad of a parameter of PyTorch; null: nothing. Never leaves a Python error set.
PyRef GradientOf(PyObject* parameter);

class ParameterObserver {
 public:
  virtual ~ParameterObserver() = default;
  // The gradient of the parameter that `module` has under `name` is complete.
  virtual void OnGradient(PyObject* module, const std::string& name, PyObject* gradient) = 0;
};

class ParameterHooks {
 public:
  static bool Init();  // prepares the Python type of the hooks; once, at import
  // `module` is borrowed until RemoveAll. False when the parameter accepts no hook. Never leaves a
  // Python error set.
  static bool Add(PyObject* parameter, PyObject* module, const std::string& name,
                  ParameterObserver* observer);
  // While a framework other than PyTorch compiles a graph, which would call the hooks as Python:
  // they are off the parameters, until they are put back.
  static void SetAside();
  static void PutBack();
  static void RemoveAll();
};

}  // namespace msprobe::capture
