#include "capture/calls/module_calls.h"

#include <deque>
#include <unordered_map>
#include <utility>

#include "capture/calls/interpose_function.h"
#include "capture/calls/observe.h"

namespace msprobe::capture {
namespace {

// Watched type (an owned reference) -> its own tp_call. Never destroyed: at exit the interpreter is
// gone before static destructors run.
std::unordered_map<PyTypeObject*, ternaryfunc>& types =
    *new std::unordered_map<PyTypeObject*, ternaryfunc>;
// Object (an owned reference) -> the API that its calls are.
std::unordered_map<PyObject*, const Api*>& apis = *new std::unordered_map<PyObject*, const Api*>;
std::deque<ObservedFunction>& patchers = *new std::deque<ObservedFunction>;
ModuleObserver* module_observer = nullptr;

// How many classes the class that defines this type's __call__ has above it: nn.Module has one.
// -1 where the type defines it itself.
Py_ssize_t HeightOfCall(PyTypeObject* type) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    PyObject* const base = PyTuple_GET_ITEM(type->tp_mro, i);
    PyObject* const names = reinterpret_cast<PyTypeObject*>(base)->tp_dict;
    if (names == nullptr || PyDict_GetItemString(names, "__call__") == nullptr) continue;
    return i == 0 ? -1 : PyTuple_GET_SIZE(type->tp_mro) - i - 1;
  }
  return -1;
}

}  // namespace

PyObject* ModuleCalls::Call(PyObject* module, PyObject* args, PyObject* kwargs) {
  auto it = types.end();
  // A class that has inherited our pointer from a base calls the tp_call of the base.
  for (PyTypeObject* type = Py_TYPE(module); it == types.end() && type; type = type->tp_base)
    it = types.find(type);
  if (it == types.end()) {
    PyErr_Format(PyExc_TypeError, "'%.200s' object is not callable", Py_TYPE(module)->tp_name);
    return nullptr;
  }
  const ternaryfunc original = it->second;
  if (module_observer == nullptr) return original(module, args, kwargs);
  if (const auto api = apis.empty() ? apis.end() : apis.find(module); api != apis.end()) {
    const CallArgs call{.positional = &PyTuple_GET_ITEM(args, 0),
                        .count = PyTuple_GET_SIZE(args),
                        .dict = kwargs,
                        .callable = module};
    return Observe(*api->second, call, [&] { return original(module, args, kwargs); });
  }
  void* token = module_observer->EnterModule(
      module,
      {.positional = &PyTuple_GET_ITEM(args, 0), .count = PyTuple_GET_SIZE(args), .dict = kwargs});
  PyObject* result = original(module, args, kwargs);
  if (token != nullptr && module_observer != nullptr)
    module_observer->LeaveModule(token, module, result);
  return result;
}

void ModuleCalls::WatchApi(PyObject* object, const Api* api) {
  if (apis.try_emplace(object, api).second) Py_INCREF(object);
  Watch(Py_TYPE(object));
}

void ModuleCalls::Watch(PyTypeObject* type) {
  if (type->tp_call == nullptr || type->tp_call == Call) return;
  if (!types.try_emplace(type, type->tp_call).second) return;
  Py_INCREF(type);
  if (module_observer != nullptr) Reinstall();
}

void ModuleCalls::Forget() {
  Restore();
  for (const auto& [type, original] : types) Py_DECREF(type);
  types.clear();
  // Moved out first: with the last reference to an object, code of the program may run.
  for (const auto& [object, api] : std::exchange(apis, {})) Py_DECREF(object);
}

void ModuleCalls::AddPatcher(PyObject* function) {
  static const Api* const api = [] {
    auto* patcher = new Api;
    patcher->kind = Api::kPatcher;
    return patcher;
  }();
  if (!patchers.emplace_back().Prepare(function, api).empty()) patchers.pop_back();
}

void ModuleCalls::Install(ModuleObserver* new_observer) {
  if (module_observer == nullptr) {
    for (ObservedFunction& patcher : patchers) patcher.Install();
  }
  module_observer = new_observer;
  Reinstall();
}

void ModuleCalls::Reinstall() {
  for (auto& [type, original] : types) {
    if (type->tp_call != Call) original = type->tp_call;
    type->tp_call = Call;
  }
  // A class that defines __call__ keeps its pointer when somebody sets that of nn.Module, and so do
  // the classes below it: the graphs that a compiler makes are such classes.
  Py_ssize_t lowest = -1;
  for (const auto& [type, original] : types) {
    const Py_ssize_t height = HeightOfCall(type);
    if (height < 0 || (lowest >= 0 && height >= lowest)) continue;
    lowest = height;
    canary_ = type;
  }
}

void ModuleCalls::Remove() {
  if (module_observer == nullptr) return;
  module_observer = nullptr;
  for (ObservedFunction& patcher : patchers) patcher.Remove();
  Restore();
}

void ModuleCalls::Restore() {
  canary_ = nullptr;
  for (const auto& [type, original] : types) {
    if (type->tp_call == Call) type->tp_call = original;
  }
}

}  // namespace msprobe::capture
