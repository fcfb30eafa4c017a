// Sees every call of modules without hooks: the pointer through which Python calls an object of a
// type (tp_call) is swapped, as interpose.h does for functions. Hooks would be traced by
// torch.compile (other graphs, breaks, recompilation); this pointer is none of its business. A
// call is seen as its caller sees it: before the module's own pre-hooks, after its own hooks.
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
  // The token travels to LeaveModule; null: the call is of no interest.
  virtual void* EnterModule(PyObject* module, const CallArgs& args) = 0;
  // `result` is null when the call raised (the exception is set and stays set).
  virtual void LeaveModule(void* token, PyObject* module, PyObject* result) = 0;
};

class ModuleCalls {
 public:
  // Objects of exactly this type are seen, from the next Install on (or now, when installed).
  static void Watch(PyTypeObject* type);
  static void Forget();  // no type is watched any more

  static void Install(ModuleObserver* observer);
  static void Remove();
  // A Python function that does what Repair mends; seen from the next Install on.
  static void AddPatcher(PyObject* function);
  // Whoever sets nn.Module.__call__ for a while (torch.fx does, while it traces) resets the
  // pointers of all types; this puts ours back. Costs a comparison when all is well.
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
