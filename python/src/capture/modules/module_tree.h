// The modules of the models that are given to start, by the names they have there, with the
// parameters that expect a gradient. Walked anew at each start, since programs change their models;
// what is registered in between is told by PyTorch.
//
//   ModuleTree tree(&counters, &observer);
//   tree.AddModel("", model);
//   const NamedModule* known = tree.Find(module);   // "Module.encoder.ln.LayerNorm."
//   tree.Forget();                                  // no module is held any more
#pragma once

#include <Python.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "capture/gradients/parameter_hooks.h"
#include "capture/python/py_ref.h"
#include "capture/recording/counter_names.h"

namespace msprobe::capture {

struct NamedModule {
  std::string name;  // "encoder.ln"
  std::string stem;  // "Module.encoder.ln.LayerNorm."; "": it is not recorded, what it holds is
  uint32_t forward_counter = 0, gradient_counter = 0;
  std::vector<std::string> parameters;  // that expect a gradient
};

class ModuleTree {
 public:
  // Hears of gradients of parameters.
  ModuleTree(CounterNames* counters, ParameterObserver* observer)
      : counters_(counters), observer_(observer) {}

  // What `model` holds, but not the model itself, under `prefix` ("0." in a list of models).
  void AddModel(const std::string& prefix, PyObject* model);
  // This module, without those in it. One that stands in two places keeps its first name.
  void Add(PyObject* module, const std::string& name);
  // `module` or `parameter` was registered in another one just now, wherever that is.
  void ModuleCame(PyObject* parent, PyObject* name, PyObject* module);
  void ParameterCame(PyObject* module, PyObject* name, PyObject* parameter);
  void Forget();

  bool empty() const { return models_.empty(); }
  bool Knows(PyObject* module) const { return modules_.count(module) > 0; }
  NamedModule* Find(PyObject* module) {  // null: it is not recorded
    const auto it = modules_.find(module);
    return it == modules_.end() || it->second.stem.empty() ? nullptr : &it->second;
  }
  static PyRef ParametersOf(PyObject* module);  // a dict, mostly; no error is left set
  const std::vector<PyRef>& in_order() const { return order_; }  // all that are known

 private:
  void AddBelow(PyObject* module, const std::string& prefix, PyObject* model);
  void FindWrapper();
  bool AddOne(PyObject* module, const std::string& name);
  void AddNamed(PyObject* module, const std::string& prefix, PyObject* model);
  void AddParameter(NamedModule* known, PyObject* module, PyObject* name, PyObject* parameter);

  CounterNames* counters_;
  ParameterObserver* observer_;
  std::unordered_map<PyObject*, NamedModule> modules_;
  std::vector<PyRef> order_;                           // keeps the keys alive
  std::vector<std::pair<PyRef, std::string>> models_;  // and their prefixes
  PyTypeObject* wrapper_ = nullptr;  // only passes on what is given to the module inside; borrowed
  bool said_no_hooks_ = false;
};

}  // namespace msprobe::capture
