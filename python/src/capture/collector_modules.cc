// Module calls and the gradients of their parameters.
#include <algorithm>

#include "capture/calls/interpose.h"
#include "capture/calls/module_calls.h"
#include "capture/collector.h"
#include "capture/python/torch_api.h"
#include "engine/base/log.h"
#include "engine/model/names.h"

namespace msprobe::capture {

void Collector::BeginModuleDump(PyObject* module, const std::string& name) {
  if (run_.session == nullptr || !run_.session->collecting()) return;
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
  if (token_range_ && tokens_ <= token_range_->first) return;  // the range is still to come
  Guarded([&] { parameter_gradients_.Came(module, parameter, tensor); });
}

void Collector::ForgetModules() {
  parameter_gradients_.Forget();
  dumped_.clear();
  module_tree_.Forget();
}

void* Collector::EnterModule(PyObject* module, const CallArgs& args) {
  if (!sees_calls_ || !run_.session->collecting()) return nullptr;
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
      Begin(only_module_ != nullptr && run_.config().pkl ? module.name + "." : module.stem,
            run_.session->NextCall(module.forward_counter), /*is_module=*/true);
  if (!WriteInputs(call.get(), args)) {
    ++run_.coverage.modules.traced;
    run_.session->TakeBack(module.forward_counter);
    run_.session->filter().LeaveModule(call->entry.name());
    Recycle(std::move(call));
    return nullptr;
  }
  NoteStack(call.get());
  if (!call->wanted) ++run_.coverage.modules.ignored;
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
    run_.session->filter().LeaveModule(call->entry.name());
    call_place.modules -= call->wanted;
    if (ours && result != nullptr) {
      WriteOutput(call.get(), result, module);
    } else {
      call->entry.exception = exception;
    }
    Finish(call.get());
    Recycle(std::move(call));
  }
}

}  // namespace msprobe::capture
