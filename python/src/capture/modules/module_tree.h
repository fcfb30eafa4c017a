// The modules of the models that were passed to start(), by their names in the model, with the
// parameters that expect a gradient. The models are walked anew at each start, because programs
// change them. Of modules and parameters that are registered later, PyTorch tells.
//
//   ModuleTree tree(&counters, &observer);
//   tree.AddModel("", model);
//   const NamedModule* known = tree.Find(module);   // "Module.encoder.ln.LayerNorm."
//   tree.Forget();                                  // no module is held any more
#pragma once

#include <Python.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/gradients/parameter_hooks.h"
#include "capture/python/py_ref.h"
#include "capture/recording/counter_names.h"

namespace msprobe::capture {

struct NamedModule {
  std::string name;  // "encoder.ln"
  std::string
      // "Module.encoder.ln.LayerNorm.", "Cell.fc.Dense."; "": only the modules inside are recorded
      stem;
  uint32_t forward_counter = 0, gradient_counter = 0;
  bool may_draw = false;                // random numbers
  std::vector<std::string> parameters;  // those that expect a gradient
};

class ModuleTree {
 public:
  // Told of each object of a module whose calls are calls of an API, as MindSpore's Primitives are:
  // the object, and the attribute under which the module has it.
  using OnCallable = std::function<void(PyObject* object, std::string_view attribute)>;

  // `observer` is told of gradients of parameters; null: only the names of modules are needed.
  ModuleTree(CounterNames* counters, ParameterObserver* observer)
      : counters_(counters), observer_(observer) {}

  void TellOfCallables(OnCallable on_callable) { on_callable_ = std::move(on_callable); }
  // Adds all modules inside `model`, but not the model itself. `prefix`: "0." for the first of a
  // list of models.
  void AddModel(const std::string& prefix, PyObject* model);
  // Adds this module, without the modules inside. A module with two names keeps the first one.
  void Add(PyObject* module, const std::string& name);
  // `module` or `parameter` was just registered under `name` in another module, which may be in
  // none of the models.
  void OnModuleRegistered(PyObject* parent, PyObject* name, PyObject* module);
  void OnParameterRegistered(PyObject* module, PyObject* name, PyObject* parameter);
  void Forget();

  bool empty() const { return models_.empty(); }
  bool Knows(PyObject* module) const { return modules_.count(module) > 0; }
  NamedModule* Find(PyObject* module) {  // null: it is not recorded
    const auto it = modules_.find(module);
    return it == modules_.end() || it->second.stem.empty() ? nullptr : &it->second;
  }
  static PyRef ParametersOf(PyObject* module);  // a dict, mostly; no error is left set
  // Whether it can be the model of a training: it has parameters, and modules inside.
  static bool CanBeModel(PyObject* module);
  // Whether the module is in train mode; nullopt when its own dict does not say.
  static std::optional<bool> IsTraining(PyObject* module);
  const std::vector<PyRef>& in_order() const { return order_; }  // all that are known

 private:
  void AddBelow(PyObject* module, const std::string& prefix, PyObject* model);
  void FindWrapper();
  bool AddOne(PyObject* module, const std::string& name);
  void AddCallables(PyObject* module);
  void AddNamed(PyObject* module, const std::string& prefix, PyObject* model);
  void AddParameter(NamedModule* known, PyObject* module, PyObject* name, PyObject* parameter);

  CounterNames* counters_;
  ParameterObserver* observer_;
  OnCallable on_callable_;
  std::unordered_map<PyObject*, NamedModule> modules_;
  std::vector<PyRef> order_;                           // keeps the keys alive
  std::vector<std::pair<PyRef, std::string>> models_;  // and their prefixes
  PyTypeObject* wrapper_ = nullptr;  // FSDP's class, which only calls the module inside; borrowed
  bool said_no_hooks_ = false;
};

}  // namespace msprobe::capture
