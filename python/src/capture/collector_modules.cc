// Module calls and the gradients of their parameters.
#include <algorithm>
#include <utility>

#include "capture/collector.h"
#include "capture/interpose.h"
#include "capture/module_calls.h"
#include "capture/torch_api.h"
#include "engine/base/log.h"
#include "engine/dump/names.h"

namespace msprobe::capture {

void Collector::AddModule(PyObject* module, const std::string& name) {
  const auto [it, inserted] = modules_.try_emplace(module);
  if (!inserted) return;  // a module that stands in two places keeps its first name
  Py_INCREF(module);
  module_order_.push_back(module);
  ModuleCalls::Watch(Py_TYPE(module));
  // A lazy module turns into this class at its first call.
  const PyRef later = PyRef::Steal(PyObject_GetAttrString(module, "cls_to_become"));
  PyErr_Clear();
  if (later && PyType_Check(later.get()))
    ModuleCalls::Watch(reinterpret_cast<PyTypeObject*>(later.get()));
  std::string_view type = Py_TYPE(module)->tp_name;
  if (const size_t dot = type.rfind('.'); dot != std::string_view::npos)
    type.remove_prefix(dot + 1);
  it->second.stem = "Module." + name + "." + std::string(type) + ".";
  it->second.forward_counter = CounterFor(it->second.stem + "forward");
  it->second.gradient_counter = CounterFor(it->second.stem + "parameters_grad");
}

void Collector::AddParameter(PyObject* module, const std::string& parameter, PyObject* tensor) {
  const auto it = modules_.find(module);
  if (it == modules_.end()) return;
  if (!ParameterHooks::Add(tensor, module, parameter, this) && !std::exchange(no_hooks_, true))
    Log(LogLevel::kWarning,
        "gradients of parameters are not recorded: that needs PyTorch 2.1 or newer");
  std::vector<std::string>& known = it->second.parameters;
  if (std::find(known.begin(), known.end(), parameter) == known.end()) known.push_back(parameter);
}

void Collector::GradientCame(PyObject* module, const std::string& parameter, PyObject* tensor) {
  Guarded([&] { ParameterGradient(module, parameter, tensor); });
}

void Collector::ForgetModules() {
  ParameterHooks::RemoveAll();
  ModuleCalls::Forget();
  modules_.clear();
  dumped_.clear();
  for (PyObject* module : module_order_) Py_DECREF(module);
  module_order_.clear();
}

void* Collector::EnterModule(PyObject* module, const CallArgs& args) {
  if (!sees_calls_ || !session_->collecting()) return nullptr;
  const auto it = modules_.find(module);
  if (it == modules_.end()) return nullptr;
  if (only_module_ != nullptr ? module != only_module_ : dumped_.count(module) > 0) return nullptr;
  const KeepError keep;
  const Interposer::Pause pause;
  const QuietTorch quiet;
  return Guarded([&] { return EnterModuleCall(&it->second, args); });
}

void* Collector::EnterModuleCall(ModuleInfo* info, const CallArgs& args) {
  std::unique_ptr<OpenCall> call =
      Begin(info->stem, session_->NextCall(info->forward_counter), /*is_module=*/true);
  if (!WriteInputs(call.get(), args)) {
    ++coverage_.modules.traced;
    session_->TakeBack(info->forward_counter);
    session_->filter().LeaveModule(call->builder.name());
    Recycle(std::move(call));
    return nullptr;
  }
  NoteStack(call.get());
  if (!call->wanted) ++coverage_.modules.ignored;
  call_place.modules += call->wanted;
  call->ticket = ++last_ticket_;
  std::vector<std::unique_ptr<OpenCall>>& open = Thread().modules;
  open.push_back(std::move(call));
  return reinterpret_cast<void*>(open.back()->ticket);
}

void Collector::LeaveModule(void* token, PyObject* module, PyObject* result) {
  std::vector<std::unique_ptr<OpenCall>>& open = Thread().modules;
  const uintptr_t ticket = reinterpret_cast<uintptr_t>(token);
  // Closed by a stop in the meantime, or called in another thread than it returns in.
  if (std::none_of(open.begin(), open.end(), [&](const auto& c) { return c->ticket == ticket; }))
    return;
  const std::string_view exception = result == nullptr ? TypeName(PyErr_Occurred()) : "";
  const KeepError keep;
  const Interposer::Pause pause;
  const QuietTorch quiet;
  Guarded([&] { LeaveModuleCall(ticket, module, result, exception); });
}

void Collector::LeaveModuleCall(uintptr_t ticket, PyObject* module, PyObject* result,
                                std::string_view exception) {
  std::vector<std::unique_ptr<OpenCall>>& open = Thread().modules;
  bool ours = false;
  while (!ours) {
    std::unique_ptr<OpenCall> call = std::move(open.back());
    open.pop_back();
    ours = call->ticket == ticket;
    session_->filter().LeaveModule(call->builder.name());
    call_place.modules -= call->wanted;
    if (ours && result != nullptr) {
      WriteOutput(call.get(), result, module);
    } else {
      call->builder.Field("exception", exception);
    }
    Finish(call.get());
    Recycle(std::move(call));
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
  const QuietTorch quiet;
  PyRef gradient = PyRef::Steal(PyObject_GetAttrString(tensor, "grad"));
  PyErr_Clear();
  if (!gradient || gradient.get() == Py_None) return;
  ModuleInfo& info = it->second;
  if (looks_for_overflow()) return CheckGradient(&info, parameter, gradient.get());
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
