#include "capture/gradients/parameter_hooks.h"

#include <string_view>
#include <utility>
#include <vector>

#include "capture/calls/interpose.h"
#include "capture/python/callable_type.h"
#include "capture/python/framework.h"
#include "capture/python/py_ref.h"
#include "capture/python/torch_api.h"

namespace msprobe::capture {
namespace {

// Is called with the parameter, whose attribute `grad` is the gradient; by frameworks other than
// PyTorch with the gradient itself.
struct ParameterHook {
  PyObject_HEAD vectorcallfunc call;
  PyObject* module;
  PyObject* parameter;  // null when PyTorch passes the parameter to the hook
  std::string* name;
  ParameterObserver* observer;
};

PyTypeObject parameter_hook_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

// A hook of ours that is registered. From PyTorch 2.1 on: the parameter's dict of hooks, and our
// hook, which is the key and the value in it. Before: the node that accumulates the gradient, which
// lives only as long as somebody holds a reference to it, and the handle of our hook. Of another
// framework: the parameter, our hook, and what HookGradient returned, nothing while it is set
// aside.
struct HeldHook {
  PyRef hooks, hook, node, handle, parameter, of_framework;
};
// Never destroyed: at exit the interpreter is gone before static destructors run.
std::vector<HeldHook>& places = *new std::vector<HeldHook>;

PyObject* CallParameterHook(PyObject* self, PyObject* const* args, size_t nargsf, PyObject*) {
  auto* hook = reinterpret_cast<ParameterHook*>(self);
  if (PyVectorcall_NARGS(nargsf) > 0) {
    const PyRef keep = PyRef::Borrow(self);  // collection may end meanwhile
    if (!Framework::Get().is_torch()) {
      if (args[0] != Py_None) hook->observer->OnGradient(hook->module, *hook->name, args[0]);
    } else if (const PyRef gradient = GradientOf(hook->parameter ? hook->parameter : args[0])) {
      hook->observer->OnGradient(hook->module, *hook->name, gradient.get());
    }
  }
  Py_RETURN_NONE;
}

void DeallocParameterHook(PyObject* self) {
  auto* hook = reinterpret_cast<ParameterHook*>(self);
  Py_CLEAR(hook->parameter);
  delete hook->name;
  PyObject_Free(self);
}

PyRef NewParameterHook(PyObject* module, const std::string& name, ParameterObserver* observer) {
  auto* hook = PyObject_New(ParameterHook, &parameter_hook_type);
  if (hook == nullptr) return PyRef();
  hook->call = CallParameterHook;
  hook->module = module;
  hook->parameter = nullptr;
  hook->name = new std::string(name);
  hook->observer = observer;
  return PyRef::Steal(reinterpret_cast<PyObject*>(hook));
}

PyRef CallTorch(const char* function, PyObject* argument = nullptr) {
  const PyRef module = PyRef::Steal(PyImport_ImportModule("torch._C"));
  const PyRef callable =
      module ? PyRef::Steal(PyObject_GetAttrString(module.get(), function)) : PyRef();
  return callable ? PyRef::Steal(PyObject_CallFunctionObjArgs(callable.get(), argument, nullptr))
                  : PyRef();
}

// The node that accumulates a parameter's gradient. It is the parent of the node of any view of the
// parameter.
PyRef AccumulatingNode(PyObject* parameter) {
  const Interposer::Pause pause;
  const PyRef before = CallTorch("is_grad_enabled");  // start() may be called where it is not
  if (!before || !CallTorch("_set_grad_enabled", Py_True)) return PyRef();
  PyRef view = PyRef::Steal(PyObject_CallMethod(parameter, "expand_as", "O", parameter));
  const KeepError keep;
  CallTorch("_set_grad_enabled", before.get());
  PyRef node = view ? PyRef::Steal(PyObject_GetAttrString(view.get(), "grad_fn")) : PyRef();
  PyRef next = node ? PyRef::Steal(PyObject_GetAttrString(node.get(), "next_functions")) : PyRef();
  PyRef edge = next ? PyRef::Steal(PySequence_GetItem(next.get(), 0)) : PyRef();
  node = edge ? PyRef::Steal(PySequence_GetItem(edge.get(), 0)) : PyRef();
  ClearError();
  const bool accumulates =
      node && std::string_view(Py_TYPE(node.get())->tp_name).ends_with("AccumulateGrad");
  return accumulates ? node : PyRef();
}

// Before PyTorch 2.1: a hook that is called after the accumulating node has run.
bool AddToNode(PyObject* parameter, const PyRef& hook) {
  PyRef node = AccumulatingNode(parameter);
  reinterpret_cast<ParameterHook*>(hook.get())->parameter = PyRef::Borrow(parameter).release();
  PyRef handle =
      node ? PyRef::Steal(PyObject_CallMethod(node.get(), "register_hook", "O", hook.get()))
           : PyRef();
  ClearError();
  if (!handle) return false;
  places.push_back({.node = std::move(node), .handle = std::move(handle)});
  return true;
}

}  // namespace

PyRef GradientOf(PyObject* parameter) {
  const TorchApi& torch = TorchApi::Get();
  const Interposer::Pause pause;
  const QuietTorch quiet;
  PyRef gradient =
      PyRef::Steal(torch.IsPlainTensor(parameter) ? torch.grad(parameter)
                                                  : PyObject_GetAttrString(parameter, "grad"));
  ClearError();
  return gradient && gradient.get() != Py_None ? std::move(gradient) : PyRef();
}

bool ParameterHooks::Init() {
  return ReadyCallableType<ParameterHook>(&parameter_hook_type, "msprobe._engine.ParameterHook",
                                          DeallocParameterHook);
}

bool ParameterHooks::Add(PyObject* parameter, PyObject* module, const std::string& name,
                         ParameterObserver* observer) {
  // This is what Tensor.register_post_accumulate_grad_hook does, except that no handle is made.
  static PyObject* const attribute = PyUnicode_InternFromString("_post_accumulate_grad_hooks");
  const QuietTorch quiet(parameter);  // a lazy module's parameter answers for itself
  PyRef hook = NewParameterHook(module, name, observer);
  if (!Framework::Get().is_torch()) {
    PyRef handle = hook ? Framework::Get().HookGradient(parameter, hook.get()) : PyRef();
    if (!handle) return false;
    places.push_back({.hook = std::move(hook),
                      .parameter = PyRef::Borrow(parameter),
                      .of_framework = std::move(handle)});
    return true;
  }
  PyRef hooks = PyRef::Steal(PyObject_GetAttr(parameter, attribute));
  if (hook && !hooks) {
    ClearError();
    return AddToNode(parameter, hook);
  }
  if (hooks.get() == Py_None) {
    hooks = PyRef::Steal(PyODict_New());
    if (hooks && PyObject_SetAttr(parameter, attribute, hooks.get()) != 0) hooks = PyRef();
  }
  // The keys of other hooks are numbers; ours is the hook itself, so that keys never clash.
  if (!hook || !hooks || PyObject_SetItem(hooks.get(), hook.get(), hook.get()) != 0) {
    ClearError();
    return false;
  }
  places.push_back({.hooks = std::move(hooks), .hook = std::move(hook)});
  return true;
}

void ParameterHooks::SetAside() {
  for (HeldHook& place : places) {
    if (!place.of_framework) continue;
    Framework::Get().Unhook(place.of_framework.get());
    place.of_framework = PyRef();
  }
}

void ParameterHooks::PutBack() {
  for (HeldHook& place : places) {
    if (place.parameter && !place.of_framework)
      place.of_framework = Framework::Get().HookGradient(place.parameter.get(), place.hook.get());
  }
}

void ParameterHooks::RemoveAll() {
  for (const auto& place : std::exchange(places, {})) {
    if (place.parameter) {
      if (place.of_framework) Framework::Get().Unhook(place.of_framework.get());
    } else if (place.handle) {
      PyRef::Steal(PyObject_CallMethod(place.handle.get(), "remove", nullptr));
      ClearError();
    } else if (PyObject_DelItem(place.hooks.get(), place.hook.get()) != 0) {
      ClearError();  // the program has emptied the dict
    }
  }
}

}  // namespace msprobe::capture
