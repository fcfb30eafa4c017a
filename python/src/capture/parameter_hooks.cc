#include "capture/parameter_hooks.h"

#include <utility>
#include <vector>

#include "capture/callable_type.h"
#include "capture/py_ref.h"
#include "capture/torch_api.h"

namespace msprobe::capture {
namespace {

struct Hook {
  PyObject_HEAD vectorcallfunc call;
  PyObject* module;
  std::string* name;
  ParameterObserver* observer;
};

PyTypeObject hook_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

// A parameter's dict of hooks, and ours in it.
using Place = std::pair<PyRef, PyRef>;
// Never destroyed: at exit the interpreter is gone before static destructors run.
std::vector<Place>& places = *new std::vector<Place>;

PyObject* CallHook(PyObject* self, PyObject* const* args, size_t nargsf, PyObject*) {
  auto* hook = reinterpret_cast<Hook*>(self);
  if (PyVectorcall_NARGS(nargsf) > 0) {
    const PyRef keep = PyRef::Borrow(self);  // collection may end meanwhile
    hook->observer->GradientCame(hook->module, *hook->name, args[0]);
  }
  Py_RETURN_NONE;
}

void DeallocHook(PyObject* self) {
  delete reinterpret_cast<Hook*>(self)->name;
  PyObject_Free(self);
}

}  // namespace

bool ParameterHooks::Init() {
  return ReadyCallableType<Hook>(&hook_type, "msprobe._engine.ParameterHook", DeallocHook);
}

bool ParameterHooks::Add(PyObject* parameter, PyObject* module, const std::string& name,
                         ParameterObserver* observer) {
  // What Tensor.register_post_accumulate_grad_hook does, but for the handle.
  static PyObject* const attribute = PyUnicode_InternFromString("_post_accumulate_grad_hooks");
  const QuietTorch quiet(parameter);  // a lazy module's parameter answers for itself
  PyRef hooks = PyRef::Steal(PyObject_GetAttr(parameter, attribute));
  if (hooks.get() == Py_None) {
    hooks = PyRef::Steal(PyODict_New());
    if (hooks && PyObject_SetAttr(parameter, attribute, hooks.get()) != 0) hooks = PyRef();
  }
  auto* hook = hooks ? PyObject_New(Hook, &hook_type) : nullptr;
  if (hook == nullptr) {
    ClearError();
    return false;
  }
  hook->call = CallHook;
  hook->module = module;
  hook->name = new std::string(name);
  hook->observer = observer;
  PyRef owned = PyRef::Steal(reinterpret_cast<PyObject*>(hook));
  // The key cannot be that of somebody's handle: those are numbers.
  if (PyObject_SetItem(hooks.get(), owned.get(), owned.get()) != 0) {
    ClearError();
    return false;
  }
  places.emplace_back(std::move(hooks), std::move(owned));
  return true;
}

void ParameterHooks::RemoveAll() {
  for (const auto& [hooks, hook] : places) {
    if (PyObject_DelItem(hooks.get(), hook.get()) != 0) ClearError();  // somebody emptied it
  }
  places.clear();
}

}  // namespace msprobe::capture
