// Sees every call of modules without hooks: the pointer through which Python calls an object of a
// type (tp_call) is swapped, as interpose.h does for functions. torch.compile would trace hooks,
// which changes graphs, breaks them and recompiles; it does not look at this pointer. A call is
// seen as its caller sees it: before the module's own pre-hooks, and after its own hooks.
//
//   ModuleCalls::Watch(Py_TYPE(module));
//   ModuleCalls::Install(&observer);
//   Train();
//   ModuleCalls::Remove();
#pragma once

#include <Python.h>

#include "capture/calls/interpose.h"

namespace msprobe::capture {

class ModuleObserver {
 public:
  virtual ~ModuleObserver() = default;
  // Returns a token that LeaveModule gets; null: LeaveModule is not called.
  virtual void* EnterModule(PyObject* module, const CallArgs& args) = 0;
  // `result` is null when the call raised (the exception is set and stays set).
  virtual void LeaveModule(void* token, PyObject* module, PyObject* result) = 0;
};

class ModuleCalls {
 public:
  // The calls of this object, which is no module, are calls of an API: Interposer's observer sees
  // them. Until Forget.
  static void WatchApi(PyObject* object, const Api* api);
  // Calls of objects of exactly this type are seen, from the next Install on (or now, if
  // installed).
  static void Watch(PyTypeObject* type);
  static void Forget();  // ends Watch for all types

  static void Install(ModuleObserver* observer);
  static void Remove();
  // A Python function that resets our pointers (see Repair). Its calls are seen from the next
  // Install on, and our pointers are put back after each.
  static void AddPatcher(PyObject* function);
  // Code that sets nn.Module.__call__ for a while resets the pointers of all types; torch.fx does
  // so while it traces. Repair puts our pointers back. When nothing was reset it costs one
  // comparison.
  static void Repair() {
    if (canary_ != nullptr && canary_->tp_call != Call) Reinstall();
  }

 private:
  static PyObject* Call(PyObject* module, PyObject* args, PyObject* kwargs);
  static void Reinstall();
  static void Restore();
  static inline PyTypeObject* canary_ = nullptr;  // a watched type, while installed
};

}  // namespace msprobe::capture
