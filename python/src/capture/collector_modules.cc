// Module calls and the gradients of their parameters.
#include <algorithm>

#include "capture/collector.h"
#include "capture/interpose.h"
#include "engine/dump/names.h"

namespace msprobe::capture {
namespace {

// sys.exception(), borrowed, for comparison.
PyObject* HandledException() {
  PyObject *type, *value, *traceback;
  PyErr_GetExcInfo(&type, &value, &traceback);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  return value == Py_None ? nullptr : value;
}

}  // namespace

void Collector::AddModule(PyObject* module, const std::string& name) {
  const auto [it, inserted] = modules_.try_emplace(module);
  if (!inserted) return;  // a module that stands in two places keeps its first name
  Py_INCREF(module);
  module_order_.push_back(module);
  std::string_view type = Py_TYPE(module)->tp_name;
  if (const size_t dot = type.rfind('.'); dot != std::string_view::npos)
    type.remove_prefix(dot + 1);
  it->second.stem = "Module." + name + "." + std::string(type) + ".";
  it->second.forward_counter = CounterFor(it->second.stem + "forward");
  it->second.gradient_counter = CounterFor(it->second.stem + "parameters_grad");
}

void Collector::AddParameter(PyObject* module, const std::string& parameter,
                             bool expects_gradient) {
  const auto it = modules_.find(module);
  if (it != modules_.end() && expects_gradient) it->second.parameters.push_back(parameter);
}

void Collector::ForgetModules() {
  modules_.clear();
  for (PyObject* module : module_order_) Py_DECREF(module);
  module_order_.clear();
}

void Collector::EnterModule(PyObject* module, PyObject* args) {
  if (!sees_calls_ || !session_->collecting() || !modules_wanted_) return;
  const auto it = modules_.find(module);
  if (it == modules_.end() || !PyTuple_Check(args)) return;
  const Interposer::Pause pause;
  std::unique_ptr<OpenCall> call =
      Begin(it->second.stem, session_->NextCall(it->second.forward_counter), /*is_module=*/true);
  call->module = module;
  call->handled = HandledException();
  // A global pre-hook is not given the keyword arguments; the frame that calls it has them under
  // this name.
  PyObject* locals = PyEval_GetLocals();
  PyObject* kwargs =
      locals != nullptr && PyDict_Check(locals) ? PyDict_GetItemString(locals, "kwargs") : nullptr;
  if (kwargs != nullptr && !PyDict_Check(kwargs)) kwargs = nullptr;
  PyErr_Clear();
  if (!WriteInputs(call.get(), {.positional = &PyTuple_GET_ITEM(args, 0),
                                .count = PyTuple_GET_SIZE(args),
                                .dict = kwargs})) {
    ++coverage_.modules.traced;
    session_->TakeBack(it->second.forward_counter);
    Recycle(std::move(call));
    return;
  }
  NoteStack(call.get());
  if (!call->wanted) ++coverage_.modules.ignored;
  call_place.modules += call->wanted;
  Thread().modules.push_back(std::move(call));
}

void Collector::LeaveModule(PyObject* module, PyObject* output) {
  std::vector<std::unique_ptr<OpenCall>>& open = Thread().modules;
  if (std::none_of(open.begin(), open.end(),
                   [&](const auto& call) { return call->module == module; }))
    return;
  const Interposer::Pause pause;
  while (true) {
    std::unique_ptr<OpenCall> call = std::move(open.back());
    open.pop_back();
    session_->filter().LeaveModule(call->builder.name());
    call_place.modules -= call->wanted;
    const bool ours = call->module == module;
    PyObject* handled = HandledException();
    if (!ours || (output == Py_None && handled != nullptr && handled != call->handled)) {
      call->builder.Field(
          "exception", TypeName(handled ? reinterpret_cast<PyObject*>(Py_TYPE(handled)) : nullptr));
    } else {
      WriteOutput(call.get(), output, module);
    }
    Finish(call.get());
    Recycle(std::move(call));
    if (ours) return;
  }
}

void Collector::ParameterGradient(PyObject* module, const std::string& parameter,
                                  PyObject* tensor) {
  const auto it = modules_.find(module);
  if (it == modules_.end() || !session_->collecting() || !session_->filter().data_mode.backward() ||
      !records_values())
    return;
  if (token_range_ && tokens_ <= token_range_->first) return;  // the range is still to come
  const Interposer::Pause pause;
  PyRef gradient = PyRef::Steal(PyObject_GetAttrString(tensor, "grad"));
  PyErr_Clear();
  if (!gradient || gradient.get() == Py_None) return;
  ModuleInfo& info = it->second;
  if (info.gradients.count(parameter) > 0) WriteGradients(&info);
  if (info.gradients.empty())
    info.gradient_entry = ComposeEntryName(info.stem, session_->NextCall(info.gradient_counter),
                                           "parameters_grad", true);
  std::string& json = info.gradients[parameter];
  std::string file;
  if (Stores(info.gradient_entry))
    file = SafeFileName(info.gradient_entry + "." + parameter, ".pt");
  AppendTensorJson(&json, gradient.get(), options_, StyleOf(info.gradient_entry, true), file);
  if (info.gradients.size() == info.parameters.size()) WriteGradients(&info);
}

void Collector::WriteGradients(ModuleInfo* info) {
  if (info->gradients.empty()) return;
  if (session_->filter().WantsEntry(info->gradient_entry)) {
    EntryBuilder builder;
    builder.Begin(info->gradient_entry);
    for (const std::string& parameter : info->parameters) {
      const auto it = info->gradients.find(parameter);
      if (it == info->gradients.end()) continue;
      builder.BeginSlot(parameter, "", '[');
      builder.Piece(it->second);
      builder.EndSlot(']');
    }
    session_->Record({.entry = builder.Finish(), .name = info->gradient_entry});
  }
  info->gradients.clear();
}

}  // namespace msprobe::capture
