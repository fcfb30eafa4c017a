// Gradients of the parameters of modules. All parameters of a module that get a gradient in one
// backward pass are one entry, which is recorded when the last of them has come. Whether it is
// wanted is asked when the first one comes, since a file is written for each before the entry is.
#pragma once

#include <Python.h>

#include <map>
#include <string>
#include <unordered_map>

#include "capture/modules/module_tree.h"
#include "capture/recording/recording.h"
#include "capture/tasks/overflow_check.h"

namespace msprobe::capture {

class ParameterGradients {
 public:
  ParameterGradients(Recording* recording, ModuleTree* modules, OverflowCheck* overflow)
      : recording_(recording), modules_(modules), overflow_(overflow) {}

  // The gradient of the module's parameter of this name is complete.
  void OnGradient(PyObject* module, const std::string& parameter, PyObject* gradient);
  // The same of a module by its name, "Cell.fc1.Dense", in a compiled graph.
  void OnGradient(const std::string& module, const std::string& parameter,
                  FrameworkTensor* gradient);
  void WriteAll();  // at stop: records entries of which some gradients have come
  void Forget() {
    arrived_.clear();
    by_stem_.clear();
  }

 private:
  struct Arrived {
    std::map<std::string, TensorValue> gradients;  // by parameter
    std::string entry;                             // name of their entry; "": none has come
    bool wanted = false;  // by `list` and `scope`; else nothing is measured or stored
  };
  bool Wants() const;
  // `record(style, file)` makes the value of the gradient.
  template <typename Record>
  void Arrive(PyObject* module, const NamedModule& known, const std::string& parameter,
              Record&& record);
  void Write(const NamedModule& module, Arrived* arrived);

  Recording* recording_;
  ModuleTree* modules_;
  OverflowCheck* overflow_;
  std::unordered_map<PyObject*, Arrived> arrived_;  // by module
  // Filled where the first compiled gradient arrives; the tree keeps the modules alive.
  std::unordered_map<std::string, PyObject*> by_stem_;
};

}  // namespace msprobe::capture
