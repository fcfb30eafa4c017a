// Hooks on parameters, called when backward has completed a gradient. Registered without a Python
// frame, since every start() does so anew for all parameters of the model.
//
//   ParameterHooks::Add(parameter, module, "weight", &observer);
//   ParameterHooks::RemoveAll();                                  // before modules are forgotten
#pragma once

#include <Python.h>

#include <string>

namespace msprobe::capture {

class ParameterObserver {
 public:
  virtual ~ParameterObserver() = default;
  virtual void OnGradient(PyObject* module, const std::string& name, PyObject* parameter) = 0;
};

class ParameterHooks {
 public:
  static bool Init();  // readies the hook type; once, at import
  // `module` is borrowed until RemoveAll. False when the parameter takes no hook; no Python error
  // is left set.
  static bool Add(PyObject* parameter, PyObject* module, const std::string& name,
                  ParameterObserver* observer);
  static void RemoveAll();
};

}  // namespace msprobe::capture
