// Follows an observed call from its beginning to its end: fills its entry, and records the entry
// when it is complete.
//
//   std::unique_ptr<OpenCall> call = calls.Begin(stem, number, /*is_module=*/false);
//   if (calls.WriteInputs(call.get(), args)) calls.NoteStack(call.get());
//   calls.WriteOutput(call.get(), result, /*module=*/nullptr);
//   calls.Finish(call.get());
//   calls.Recycle(std::move(call));
#pragma once

#include <Python.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "capture/collectives/async_collectives.h"
#include "capture/recorders/gradient_recorder.h"
#include "capture/recording/open_call.h"
#include "capture/recording/recording.h"
#include "capture/tasks/baseline_check.h"
#include "capture/tasks/overflow_check.h"
#include "capture/tasks/reference_check.h"

namespace msprobe::capture {

class CallRecorder final : public CallWriter {
 public:
  CallRecorder(Recording* recording, OverflowCheck* overflow, ReferenceCheck* reference,
               BaselineCheck* baseline, GradientRecorder* gradients)
      : recording_(recording),
        overflow_(overflow),
        reference_(reference),
        baseline_(baseline),
        gradients_(gradients) {}

  // Begins call number `number` of `stem`, such as "Functional.relu.".
  std::unique_ptr<OpenCall> Begin(const std::string& stem, int64_t number, bool is_module);
  // False: a compiler traces the call, so it is not part of the training step.
  bool WriteInputs(OpenCall* call, const CallArgs& args);
  void NoteStack(OpenCall* call);
  // Of a call that may draw random numbers: the state of its generator.
  void NoteGenerator(OpenCall* call, const CallArgs& args);
  // `module`: the module that was called; null for an API call.
  void WriteOutput(OpenCall* call, PyObject* output, PyObject* module);
  // What the call has changed and does not return (changed_values.h). To be called after
  // WriteOutput, with what was seen before the call.
  void WriteChanged(OpenCall* call, const Api& api, const CallArgs& args, PyObject* result);
  void WriteChanged(OpenCall* call, PyObject* module);
  // Whether WriteChanged will write anything.
  bool RecordsChanges(const OpenCall& call) const;
  void WriteList(OpenCall* call, const std::vector<PyRef>& values) override;
  void Finish(OpenCall* call) override;
  void Recycle(std::unique_ptr<OpenCall> call) override;

  // Module calls of this thread that have not returned, the innermost last.
  static std::vector<std::unique_ptr<OpenCall>>& OpenModules();

 private:
  struct ThreadState;
  static ThreadState& Thread();
  // Whether it is decided only after a call whether it is recorded.
  bool waits_to_record() const { return recording_->looks_for_overflow() || reference_->on(); }
  void Record(OpenCall* call);  // unless the task finds nothing in it
  bool DecideForward(OpenCall* call);
  void KeepTensors(OpenCall* call, EntryStyle* style);  // for the baseline
  // A call in no module gets the region of its stack ("optimizer") as its parent.
  void NoteRegion(OpenCall* call, const std::string& region);

  Recording* recording_;
  OverflowCheck* overflow_;
  ReferenceCheck* reference_;
  BaselineCheck* baseline_;
  GradientRecorder* gradients_;
  std::map<std::string, int64_t> region_dumps_;  // region -> the last dump that recorded it
};

}  // namespace msprobe::capture
