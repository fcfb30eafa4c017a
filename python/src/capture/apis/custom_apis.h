// Functions that the program, or a list of its own, names: custom APIs, operators of other
// namespaces of torch.ops, Triton kernels.
//
//   // "" or why it is not observed.
//   std::string reason = custom_apis.Register("mine", module, name);
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

namespace msprobe::capture {

class CustomApis {
 public:
  // Does a change while nothing is observed: what is added to the interposer while it is installed
  // would not be seen before the next start.
  using WhileRemoved = std::function<void(const std::function<void()>& change)>;

  // There is one in a process: the interposer asks it what an operator or kernel is called.
  CustomApis(Recording* recording, ApiTable* table, WhileRemoved while_removed)
      : recording_(recording), table_(table), while_removed_(std::move(while_removed)) {
    instance_ = this;
  }
  CustomApis(const CustomApis&) = delete;
  CustomApis& operator=(const CustomApis&) = delete;

  // Attribute `name` of `module`, under `prefix`, from now on.
  std::string Register(const std::string& prefix, PyObject* module, PyObject* name);
  void Restore(PyObject* module, PyObject* name);
  // An operator of torch.ops (`objects`: its packet and overloads), seen where it is called.
  void AddOperator(const std::string& prefix, const std::string& name,
                   const std::vector<PyObject*>& objects);
  // `run` of a class of Triton's kernels, whose results are in its arguments.
  std::string AddKernelRun(PyObject* run);

 private:
  // Registered by the program: what was there, and what stands there now where that is another.
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
