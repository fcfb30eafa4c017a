#include "capture/modules/module_tree.h"

#include <algorithm>
#include <utility>

#include "capture/calls/interpose.h"
#include "capture/calls/module_calls.h"
#include "capture/python/framework.h"
#include "capture/python/module_attributes.h"
#include "capture/python/torch_api.h"  // QuietTorch
#include "engine/base/log.h"
#include "engine/model/names.h"

namespace msprobe::capture {
PyRef ModuleTree::ParametersOf(PyObject* module) {
  static PyObject* const name = PyUnicode_InternFromString(Framework::Get().parameters);
  return OwnAttribute(module, name);
}

std::optional<bool> ModuleTree::IsTraining(PyObject* module) {
  // Only the module's own dict: a property or __getattr__ would run code of the program.
  static PyObject* const name = PyUnicode_InternFromString("training");
  const PyRef dict = PyRef::Steal(PyObject_GenericGetDict(module, nullptr));
  PyObject* found = dict ? PyDict_GetItemWithError(dict.get(), name) : nullptr;  // borrowed
  ClearError();
  if (found != Py_True && found != Py_False) return std::nullopt;
  return found == Py_True;
}

bool ModuleTree::CanBeModel(PyObject* module) {
  static PyObject* const modules = PyUnicode_InternFromString(Framework::Get().children);
  bool has_modules = false;
  for (const auto& [key, child] : Items(OwnAttribute(module, modules)))
    has_modules = has_modules || child.get() != Py_None;
  const PyRef all =
      has_modules ? PyRef::Steal(PyObject_CallMethod(module, "parameters", nullptr)) : PyRef();
  const PyRef first = all ? PyRef::Steal(PyIter_Next(all.get())) : PyRef();
  ClearError();
  return static_cast<bool>(first);
}

void ModuleTree::FindWrapper() {
  static PyObject* const name = PyUnicode_InternFromString("torch.distributed.fsdp");
  const PyRef fsdp = PyRef::Steal(PyImport_GetModule(name));
  const PyRef type =
      fsdp ? PyRef::Steal(PyObject_GetAttrString(fsdp.get(), "FullyShardedDataParallel")) : PyRef();
  ClearError();
  if (type && PyType_Check(type.get())) wrapper_ = reinterpret_cast<PyTypeObject*>(type.get());
}

void ModuleTree::AddModel(const std::string& prefix, PyObject* model) {
  FindWrapper();
  models_.emplace_back(PyRef::Borrow(model), prefix);
  AddCallables(model);
  AddBelow(model, prefix, model);
}

void ModuleTree::AddCallables(PyObject* module) {
  if (!on_callable_ || Framework::Get().callables == nullptr) return;
  static PyObject* const callables = PyUnicode_InternFromString(Framework::Get().callables);
  for (const auto& [name, object] : Items(OwnAttribute(module, callables))) {
    if (object.get() != Py_None) on_callable_(object.get(), Utf8(name.get()));
  }
  ClearError();
}

void ModuleTree::AddBelow(PyObject* module, const std::string& prefix, PyObject* model) {
  static PyObject* const modules = PyUnicode_InternFromString(Framework::Get().children);
  static PyObject* const named_modules = PyUnicode_InternFromString("named_modules");
  if (Framework::Get().is_torch() && Overrides(module, named_modules))
    return AddNamed(module, prefix, model);
  for (const auto& [key, child] : Items(OwnAttribute(module, modules))) {
    if (child.get() == Py_None || child.get() == model) continue;
    const std::string name = prefix + std::string(Utf8(key.get()));
    if (AddOne(child.get(), name)) AddBelow(child.get(), name + ".", model);
  }
  ClearError();
}

void ModuleTree::AddNamed(PyObject* module, const std::string& prefix, PyObject* model) {
  const Interposer::Pause pause;
  const std::string above = prefix.substr(0, prefix.rfind('.'));
  const PyRef no_arguments = PyRef::Steal(PyTuple_New(0));
  const PyRef keywords = PyRef::Steal(Py_BuildValue("{s:s}", "prefix", above.c_str()));
  const PyRef names = PyRef::Steal(PyObject_GetAttrString(module, "named_modules"));
  const PyRef all =
      names && keywords
          ? PyRef::Steal(PyObject_Call(names.get(), no_arguments.get(), keywords.get()))
          : PyRef();
  const PyRef list = all ? PyRef::Steal(PySequence_List(all.get())) : PyRef();
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list.get()); ++i) {
    PyObject *name, *each;
    if (!PyArg_ParseTuple(PyList_GET_ITEM(list.get(), i), "OO", &name, &each)) break;
    if (each != model && each != module) (void)AddOne(each, std::string(Utf8(name)));
  }
  ClearError();
}

void ModuleTree::Add(PyObject* module, const std::string& name) { (void)AddOne(module, name); }

// False when the module is known already.
bool ModuleTree::AddOne(PyObject* module, const std::string& name) {
  static PyObject* const becomes = PyUnicode_InternFromString("cls_to_become");
  const auto [it, inserted] = modules_.try_emplace(module);
  if (!inserted) return false;
  NamedModule& known = it->second;  // an unordered_map does not move its values
  order_.push_back(PyRef::Borrow(module));
  known.name = name;
  PyTypeObject* type = Py_TYPE(module);
  if (wrapper_ != nullptr && PyType_IsSubtype(type, wrapper_)) return true;
  ModuleCalls::Watch(type);
  // A lazy module turns into this class at its first call.
  if (PyObject* later = _PyType_Lookup(type, becomes); later != nullptr && PyType_Check(later))
    ModuleCalls::Watch(reinterpret_cast<PyTypeObject*>(later));
  std::string_view type_name = type->tp_name;
  type_name.remove_prefix(type_name.rfind('.') + 1);  // npos + 1 is 0
  known.stem = Framework::Get().module_prefix;
  ((known.stem += name) += '.') += type_name;
  known.stem += '.';
  known.may_draw = Framework::Get().is_torch() && DrawsRandomNumbers(type_name);
  known.forward_counter = counters_->Of(known.stem + "forward");
  known.gradient_counter = counters_->Of(known.stem + "parameters_grad");
  AddCallables(module);
  if (observer_ == nullptr) return true;
  for (const auto& [key, parameter] : Items(ParametersOf(module)))
    AddParameter(&known, module, key.get(), parameter.get());
  return true;
}

void ModuleTree::AddParameter(NamedModule* known, PyObject* module, PyObject* name,
                              PyObject* parameter) {
  const Framework& framework = Framework::Get();
  if (!framework.IsTensor(parameter) || !framework.ParameterRequiresGrad(parameter)) return;
  std::string text(Utf8(name));
  if (!ParameterHooks::Add(parameter, module, text, observer_) &&
      !std::exchange(said_no_hooks_, true))
    Log(LogLevel::kWarning,
        "some gradients of parameters are not recorded: this PyTorch does not report them"_t);
  if (std::find(known->parameters.begin(), known->parameters.end(), text) ==
      known->parameters.end())
    known->parameters.push_back(std::move(text));
}

void ModuleTree::OnModuleRegistered(PyObject* parent, PyObject* name, PyObject* module) {
  if (module == Py_None) return;
  std::string path;
  PyObject* model = nullptr;
  if (const auto it = modules_.find(parent); it != modules_.end()) {
    path = it->second.name + ".";
  } else {
    const auto root = std::find_if(models_.begin(), models_.end(),
                                   [&](const auto& m) { return m.first.get() == parent; });
    if (root == models_.end()) return;
    path = root->second;
    model = parent;
  }
  path += Utf8(name);
  FindWrapper();
  if (AddOne(module, path)) AddBelow(module, path + ".", model);
}

void ModuleTree::OnParameterRegistered(PyObject* module, PyObject* name, PyObject* parameter) {
  if (NamedModule* known = Find(module)) AddParameter(known, module, name, parameter);
}

void ModuleTree::Forget() {
  ParameterHooks::RemoveAll();
  ModuleCalls::Forget();
  modules_.clear();
  models_.clear();
  // Destroyed last: with the last reference to a module, code of the program may run.
  const std::vector<PyRef> held = std::exchange(order_, {});
}

}  // namespace msprobe::capture
