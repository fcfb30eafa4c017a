#include "capture/recorders/module_recorder.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "capture/calls/interpose.h"
#include "capture/python/torch_api.h"
#include "engine/base/log.h"
#include "engine/model/names.h"

namespace msprobe::capture {
namespace {

// The followed modules that run in this thread, innermost last.
struct Followed {
  uint64_t following = 0;  // ModuleRecorder::following_ when the list was begun
  std::vector<const NamedModule*> running;
};
thread_local Followed followed;
// Marks the token of a followed module; the other bits are its place in the list.
constexpr uintptr_t kFollowed = ~(~uintptr_t{0} >> 1);

}  // namespace

void ModuleRecorder::NameFollowed(std::string* name) const {
  if (followed.following != following_ || followed.running.empty()) return;
  const std::string& stem = followed.running.back()->stem;
  name->assign(stem, 0, stem.size() - 1);  // without its last dot
}

std::string ModuleRecorder::Running() const {
  const std::vector<std::unique_ptr<OpenCall>>& open = CallRecorder::OpenModules();
  if (!open.empty()) return std::string(ParseEntryName(open.back()->entry.name()).api);
  std::string name;
  NameFollowed(&name);
  return name;
}

void* ModuleRecorder::Follow(PyObject* module) {
  const NamedModule* known = followed_->Find(module);
  if (known == nullptr) return nullptr;
  return recording_->Guarded([&] {
    if (std::exchange(followed.following, following_) != following_) followed.running.clear();
    followed.running.push_back(known);
    return reinterpret_cast<void*>(kFollowed | (followed.running.size() - 1));
  });
}

void ModuleRecorder::FindModel(PyObject* module) {
  const KeepError keep;
  const Interposer::Pause pause;
  const QuietTorch quiet;
  recording_->Guarded([&] {
    if (!ModuleTree::CanBeModel(module)) return;
    awaits_model_ = false;
    on_model_(module);
  });
}

void ModuleRecorder::RecordOnly(PyObject* module, const std::string& name) {
  if (recording_->session == nullptr || !recording_->session->collecting()) return;
  if (tree_->Knows(module) && chosen_.count(module) == 0) {
    Log(LogLevel::kWarning,
        "module_dump({}) has no effect: the level records this module anyway"_t(name));
    return;
  }
  tree_->Add(module, name);
  only_ = module;
  chosen_.insert(module);
  if (recording_->sees_calls) ModuleCalls::Install(this);
}

void* ModuleRecorder::EnterModule(PyObject* module, const CallArgs& args) {
  if (!recording_->sees_calls || !recording_->session->collecting()) return nullptr;
  if (call_place.converters > 0) return nullptr;
  const NamedModule* known = tree_->Find(module);
  if (known == nullptr) {
    if (awaits_model_) FindModel(module);
    return Follow(module);
  }
  if (only_ != nullptr ? module != only_ : chosen_.count(module) > 0) return nullptr;
  const KeepError keep;
  const Interposer::Pause pause;
  const QuietTorch quiet;
  return recording_->Guarded([&] { return Enter(*known, module, args); });
}

void* ModuleRecorder::Enter(const NamedModule& module, PyObject* object, const CallArgs& args) {
  std::unique_ptr<OpenCall> call =
      calls_->Begin(only_ != nullptr && recording_->config().pkl ? module.name + "." : module.stem,
                    recording_->session->calls().Next(module.forward_counter), /*is_module=*/true);
  if (!calls_->WriteInputs(call.get(), args)) {
    ++recording_->coverage.modules.traced;
    recording_->session->calls().ReturnCallNumber(module.forward_counter);
    recording_->session->filter().LeaveModule(call->entry.name());
    calls_->Recycle(std::move(call));
    return nullptr;
  }
  if (calls_->RecordsChanges(*call)) SeeBuffers(object, &call->versions);
  call->entry.training = ModuleTree::IsTraining(object);
  calls_->NoteStack(call.get());
  // Where APIs are recorded, too, the one inside says it.
  if (module.may_draw && !recording_->apis_wanted) calls_->NoteGenerator(call.get(), args);
  if (!call->wanted) ++recording_->coverage.modules.ignored;
  call_place.modules += call->wanted;
  call->ticket = ++last_ticket_;
  std::vector<std::unique_ptr<OpenCall>>& open = CallRecorder::OpenModules();
  open.push_back(std::move(call));
  return reinterpret_cast<void*>(open.back()->ticket);
}

void ModuleRecorder::LeaveModule(void* token, PyObject* module, PyObject* result) {
  std::vector<std::unique_ptr<OpenCall>>& open = CallRecorder::OpenModules();
  const uintptr_t ticket = reinterpret_cast<uintptr_t>(token);
  if ((ticket & kFollowed) != 0) {
    const size_t place = ticket & ~kFollowed;
    const bool here = followed.following == following_ && place < followed.running.size();
    if (here) followed.running.resize(place);
    return;
  }
  // Closed by a stop in the meantime, or called in another thread than it returns in.
  if (std::none_of(open.begin(), open.end(), [&](const auto& c) { return c->ticket == ticket; }))
    return;
  const std::string_view exception = result == nullptr ? TypeName(PyErr_Occurred()) : "";
  const KeepError keep;
  const Interposer::Pause pause;
  const QuietTorch quiet;
  recording_->Guarded([&] { Leave(ticket, module, result, exception); });
}

void ModuleRecorder::Leave(uintptr_t ticket, PyObject* module, PyObject* result,
                           std::string_view exception) {
  std::vector<std::unique_ptr<OpenCall>>& open = CallRecorder::OpenModules();
  bool ours = false;
  while (!ours) {
    std::unique_ptr<OpenCall> call = std::move(open.back());
    open.pop_back();
    ours = call->ticket == ticket;
    recording_->session->filter().LeaveModule(call->entry.name());
    call_place.modules -= call->wanted;
    if (ours && result != nullptr) {
      calls_->WriteOutput(call.get(), result, module);
      calls_->WriteChanged(call.get(), module);
    } else {
      call->entry.exception = exception;
    }
    calls_->Finish(call.get());
    calls_->Recycle(std::move(call));
  }
}

}  // namespace msprobe::capture
