// Calls of the program's subclasses of torch.autograd.Function, each under the name of its class:
// "Function.MyExp.0.forward". The calls inside a forward are recorded as before; the entry of the
// Function stands after them, as that of a module does.
//
//   AutogradFunctions functions(&api_table);
//   Message reason = functions.Add(apply);   // the function behind Function.apply; "" or why not
#pragma once

#include <Python.h>

#include <string>
#include <string_view>
#include <unordered_map>

#include "capture/apis/api_table.h"
#include "capture/python/py_ref.h"
#include "engine/base/messages/message.h"

namespace msprobe::capture {

class AutogradFunctions {
 public:
  // A process has one object: the interposer asks it for the API of a class.
  explicit AutogradFunctions(ApiTable* table) : table_(table) { instance_ = this; }
  AutogradFunctions(const AutogradFunctions&) = delete;
  AutogradFunctions& operator=(const AutogradFunctions&) = delete;

  // Observes `apply`, whose first argument is the class. To be called while nothing is observed.
  Message Add(PyObject* apply);

 private:
  struct Class {
    PyRef weak;  // its weak reference: another class may get its address
    const Api* api;
  };
  const Api* ApiOf(PyObject* type);
  const Api* New(PyObject* type);
  static inline AutogradFunctions* instance_ = nullptr;

  ApiTable* table_;
  std::unordered_map<PyObject*, Class> classes_;
  std::unordered_map<std::string, const Api*> names_;  // classes of one name share call numbers
};

// Whether a Function of this class is recorded: one of the program or of a library, and those of
// PyTorch itself that compute. The others are how PyTorch is built (what FSDP and DDP put into the
// graph, compiled code, hooks of modules).
bool RecordsFunction(std::string_view module, std::string_view name);

}  // namespace msprobe::capture
