// The names of the parameters of the models that were given to start(), as a model without wrappers
// has them ("fc.weight"). No model and no parameter is kept alive.
//
//   names.SetModels(models);
//   const std::string* name = names.Find(parameter);   // null: a parameter of no model
//   for (const auto& [name, weak] : names.InOrder()) ...
//   names.Renew();                                     // the models may have changed
#pragma once

#include <Python.h>

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "capture/python/py_ref.h"

namespace msprobe::capture {

class ParameterNames {
 public:
  // Models, each with the prefix of its names. Keeps the former ones when there are none.
  void SetModels(const std::vector<std::pair<std::string, PyObject*>>& models);
  // fully_shard gives a module other parameters between its forward and its backward pass: one that
  // is not known is looked for again, once.
  const std::string* Find(PyObject* parameter);
  // All of them, each with a weak reference, in the order of the models.
  const std::vector<std::pair<std::string, PyRef>>& InOrder();
  void Renew() { known_ = false; }

 private:
  void Read();
  void AddNames();

  std::vector<std::pair<std::string, PyRef>> models_;  // weak references
  std::vector<std::pair<std::string, PyRef>> in_order_;
  std::unordered_map<PyObject*, std::string> names_;  // the keys are never dereferenced
  std::unordered_set<PyObject*> strangers_;           // of no model, when they were looked for
  bool known_ = false;
};

}  // namespace msprobe::capture
