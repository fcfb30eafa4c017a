// Makes entries of the calls of listed functions and methods; of asynchronous collectives when
// their results have come.
//
//   Interposer::Install(&apis);
//   apis.FlushCollectives();      // at stop: collectives that the program has not waited for
#pragma once

#include <Python.h>

#include <memory>

#include "capture/calls/interpose.h"
#include "capture/collectives/async_collectives.h"
#include "capture/recorders/call_recorder.h"
#include "capture/recorders/module_recorder.h"
#include "capture/recording/recording.h"

namespace msprobe::capture {

class ApiRecorder final : public CallObserver {
 public:
  ApiRecorder(Recording* recording, CallRecorder* calls, const ModuleRecorder* modules)
      : recording_(recording),
        calls_(calls),
        modules_(modules),
        async_collectives_(recording, calls) {}

  bool has_open_collectives() const { return !async_collectives_.empty(); }
  void FlushCollectives() { async_collectives_.Flush(); }

  void* Enter(const Api& api, const CallArgs& args) override;
  void Leave(void* token, const CallArgs& args, PyObject* result) override;
  void OnWatchedCall(const Api& api, const CallArgs& args, PyObject* result) override;

 private:
  // Keeps account of memory that nobody has written, after a call that did not raise.
  void NoteMemory(const OpenCall& call, const CallArgs& args);
  void NoteAllocation(const Api& api, const CallArgs& args, PyObject* result);
  void* EnterCall(const Api& api, const CallArgs& args);
  void LeaveCall(std::unique_ptr<OpenCall> call, const CallArgs& args, PyObject* result);

  Recording* recording_;
  CallRecorder* calls_;
  const ModuleRecorder* modules_;
  AsyncCollectives async_collectives_;
};

}  // namespace msprobe::capture
