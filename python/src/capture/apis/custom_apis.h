// Functions that the program, or a list of its own, names: custom APIs, operators of other
// namespaces of torch.ops, Triton kernels.
//
//   // "" or why it is not observed.
//   Message reason = custom_apis.Register("mine", module, name);
#pragma once

#include <Python.h>

#include <functional>
#include <list>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/apis/api_table.h"
#include "capture/calls/observed_callable.h"
#include "capture/python/py_ref.h"
#include "engine/base/messages/message.h"

namespace msprobe::capture {

class CustomApis {
 public:
  // Runs `change` while nothing is observed. A function that is added while the interposer is
  // installed would not be observed before the next start.
  using WhileRemoved = std::function<void(const std::function<void()>& change)>;

  // A process has one object: the interposer asks it for the API of an operator or kernel.
  CustomApis(Recording* recording, ApiTable* table, WhileRemoved while_removed)
      : recording_(recording), table_(table), while_removed_(std::move(while_removed)) {
    instance_ = this;
  }
  CustomApis(const CustomApis&) = delete;
  CustomApis& operator=(const CustomApis&) = delete;

  // From now on observes the calls of attribute `name` of `module`, under `prefix`.
  Message Register(const std::string& prefix, PyObject* module, PyObject* name);
  void Restore(PyObject* module, PyObject* name);
  // Observes the calls of an operator of torch.ops; `objects`: its packet and overloads.
  void AddOperator(const std::string& prefix, const std::string& name,
                   const std::vector<PyObject*>& objects);
  // The same for functional collectives, as "Distributed.functional_all_reduce"; `kind` kWait: for
  // the operator that waits for their results.
  void AddCollective(const std::string& name, Api::Kind kind,
                     const std::vector<PyObject*>& objects);
  // Observes the launches of Triton's kernels; `run`: the method of their class. A kernel's results
  // are in its arguments.
  Message AddKernelRun(PyObject* run);

 private:
  void Observe(const Api* api, const std::vector<PyObject*>& objects);

  // A registered attribute: `original` is its object; `stand_in` is the object that has replaced
  // it, or null when the original is observed in place.
  struct CustomApi {
    PyRef module, name, original, stand_in;
    Api* api;
  };
  static inline CustomApis* instance_ = nullptr;

  Recording* recording_;
  ApiTable* table_;
  WhileRemoved while_removed_;
  std::list<CustomApi> custom_;
  std::unordered_map<PyObject*, const Api*> operators_;  // packets and overloads
  std::unordered_map<std::string, const Api*> kernels_;  // by name
};

}  // namespace msprobe::capture
