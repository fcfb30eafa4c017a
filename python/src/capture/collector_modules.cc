// Module calls and the gradients of their parameters.
#include <algorithm>

#include "capture/collector.h"
#include "capture/interpose.h"
#include "capture/module_calls.h"
#include "capture/torch_api.h"
#include "engine/base/log.h"
#include "engine/dump/names.h"

namespace msprobe::capture {

void Collector::BeginModuleDump(PyObject* module, const std::string& name) {
  if (!session_->collecting()) return;
  if (module_tree_.Knows(module) && dumped_.count(module) == 0) {
    Log(LogLevel::kWarning,
        "module_dump(" + name + ") has no effect: the level records this module anyway");
    return;
  }
  module_tree_.Add(module, name);
  only_module_ = module;
  dumped_.insert(module);
  if (sees_calls_) ModuleCalls::Install(this);
}

void Collector::GradientCame(PyObject* module, const std::string& parameter, PyObject* tensor) {
  Guarded([&] { ParameterGradient(module, parameter, tensor); });
}

void Collector::ForgetModules() {
  arrived_.clear();
  dumped_.clear();
  module_tree_.Forget();
}

void* Collector::EnterModule(PyObject* module, const CallArgs& args) {
  if (!sees_calls_ || !session_->collecting()) return nullptr;
  const NamedModule* known = module_tree_.Find(module);
  if (known == nullptr) return nullptr;
  if (only_module_ != nullptr ? module != only_module_ : dumped_.count(module) > 0) return nullptr;
  const KeepError keep;
  const Interposer::Pause pause;
  const QuietTorch quiet;
  return Guarded([&] { return EnterModuleCall(*known, args); });
}

void* Collector::EnterModuleCall(const NamedModule& module, const CallArgs& args) {
  std::unique_ptr<OpenCall> call =
      Begin(module.stem, session_->NextCall(module.forward_counter), /*is_module=*/true);
  if (!WriteInputs(call.get(), args)) {
    ++coverage_.modules.traced;
    session_->TakeBack(module.forward_counter);
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
  const NamedModule* known = module_tree_.Find(module);
  if (known == nullptr || !session_->collecting() || !session_->filter().data_mode.backward() ||
      !records_values())
    return;
  if (token_range_ && tokens_ <= token_range_->first) return;  // the range is still to come
  const Interposer::Pause pause;
  const QuietTorch quiet;
  const PyRef gradient =
      PyRef::Steal(TorchApi::Get().IsPlainTensor(tensor) ? TorchApi::Get().grad(tensor)
                                                         : PyObject_GetAttrString(tensor, "grad"));
  ClearError();
  if (!gradient || gradient.get() == Py_None) return;
  if (looks_for_overflow()) return CheckGradient(*known, parameter, gradient.get());
  ArrivedGradients& arrived = arrived_[module];
  if (arrived.json.count(parameter) > 0) WriteGradients(*known, &arrived);
  if (arrived.json.empty())
    arrived.entry = ComposeEntryName(known->stem, session_->NextCall(known->gradient_counter),
                                     "parameters_grad", true);
  std::string& json = arrived.json[parameter];
  std::string file;
  if (Stores(arrived.entry)) file = SafeFileName(arrived.entry + "." + parameter, ".pt");
  AppendTensorJson(&json, gradient.get(), options_, StyleOf(arrived.entry, true), file);
  if (arrived.json.size() == known->parameters.size()) WriteGradients(*known, &arrived);
}

void Collector::WriteArrivedGradients() {
  for (const PyRef& module : module_tree_.in_order()) {
    const auto it = arrived_.find(module.get());
    if (it != arrived_.end()) WriteGradients(*module_tree_.Find(module.get()), &it->second);
  }
}

void Collector::WriteGradients(const NamedModule& module, ArrivedGradients* arrived) {
  if (arrived->json.empty()) return;
  if (session_->filter().WantsEntry(arrived->entry)) {
    EntryBuilder builder;
    builder.Begin(arrived->entry);
    for (const std::string& parameter : module.parameters) {
      const auto it = arrived->json.find(parameter);
      if (it == arrived->json.end()) continue;
      builder.BeginSlot(parameter, "", '[');
      builder.Piece(it->second);
      builder.EndSlot(']');
    }
    session_->Record({.entry = builder.Finish(), .name = arrived->entry});
  }
  arrived->json.clear();
}

}  // namespace msprobe::capture
