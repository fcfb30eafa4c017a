#include "capture/devices/without_gradients.h"

#include "capture/devices/torch_calls.h"

namespace msprobe::capture {
namespace {

// Two functions of torch._C, one that tells a mode and one that sets it; null where PyTorch has no
// such mode.
struct Mode {
  PyRef tells, sets;

  Mode(const char* tell, const char* set) {
    TorchCalls torch;
    const PyRef module = torch.Constant("_C");
    tells = torch.Get(module, tell);
    sets = torch.Get(module, set);
  }
  bool SwitchOff() const {
    if (!tells || !sets) return false;
    const PyRef is_on = PyRef::Steal(PyObject_CallNoArgs(tells.get()));
    ClearError();
    if (is_on.get() != Py_True) return false;
    Set(Py_False);
    return true;
  }
  void Set(PyObject* on) const {
    const PyRef done = PyRef::Steal(PyObject_CallOneArg(sets.get(), on));
    ClearError();
  }
};

// Never destroyed: at exit the interpreter is gone before static destructors run.
const Mode& Backward() {
  static const Mode& mode = *new Mode("is_grad_enabled", "_set_grad_enabled");
  return mode;
}
const Mode& Forward() {
  static const Mode& mode = *new Mode("_is_fwd_grad_enabled", "_set_fwd_grad_enabled");
  return mode;
}

}  // namespace

WithoutGradients::WithoutGradients()
    : backward_(Backward().SwitchOff()), forward_(Forward().SwitchOff()) {}

WithoutGradients::~WithoutGradients() {
  if (forward_) Forward().Set(Py_True);
  if (backward_) Backward().Set(Py_True);
}

}  // namespace msprobe::capture
