// Makes entries of the calls of modules.
//
//   ModuleCalls::Install(&modules);
//   modules.RecordOnly(module, "block");   // only the calls of this module are recorded
//   modules.RecordAll();                   // all modules again
#pragma once

#include <Python.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "capture/calls/module_calls.h"
#include "capture/modules/module_tree.h"
#include "capture/recorders/call_recorder.h"
#include "capture/recording/recording.h"

namespace msprobe::capture {

class ModuleRecorder final : public ModuleObserver {
 public:
  // `followed`: modules whose calls get no entries; the calls of APIs inside them get their names.
  // `on_model`: told of the module that AwaitModel has found.
  ModuleRecorder(Recording* recording, ModuleTree* tree, ModuleTree* followed, CallRecorder* calls,
                 std::function<void(PyObject*)> on_model)
      : recording_(recording),
        tree_(tree),
        followed_(followed),
        calls_(calls),
        on_model_(std::move(on_model)) {}

  // The program has named no model: it is the first called module that can be one.
  void AwaitModel(bool wanted) { awaits_model_ = wanted; }
  bool awaits_model() const { return awaits_model_; }

  // Until RecordAll, the calls of this module are recorded under `name`, and no other calls.
  void RecordOnly(PyObject* module, const std::string& name);
  void RecordAll() { only_ = nullptr; }
  bool records_only_one() const { return only_ != nullptr; }
  void Forget() { chosen_.clear(); }  // modules may be destroyed after this

  // Writes the innermost followed module that runs in this thread, "Module.fc.Linear"; keeps `name`
  // when there is none.
  void NameFollowed(std::string* name) const;
  // The innermost module that runs in this thread, recorded or followed, "Module.fc.Linear"; ""
  // when there is none.
  std::string Running() const;
  void StopFollowing() { ++following_; }  // the modules may be destroyed after this

  void* EnterModule(PyObject* module, const CallArgs& args) override;
  void LeaveModule(void* token, PyObject* module, PyObject* result) override;

 private:
  void* Enter(const NamedModule& module, PyObject* object, const CallArgs& args);
  void* Follow(PyObject* module);
  void FindModel(PyObject* module);
  void Leave(uintptr_t ticket, PyObject* module, PyObject* result, std::string_view exception);

  Recording* recording_;
  ModuleTree *tree_, *followed_;
  CallRecorder* calls_;
  std::function<void(PyObject*)> on_model_;
  bool awaits_model_ = false;
  PyObject* only_ = nullptr;
  std::unordered_set<PyObject*> chosen_;  // modules given to RecordOnly; not recorded otherwise
  uintptr_t last_ticket_ = 0;
  uint64_t following_ = 1;  // grows when the followed modules of all threads are forgotten
};

}  // namespace msprobe::capture
