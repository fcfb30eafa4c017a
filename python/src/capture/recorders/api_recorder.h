// Calls of listed functions and methods become entries; collectives when their results are there.
//
//   Interposer::Install(&apis);
//   apis.FlushLate();             // at stop: collectives that the program has not waited for
#pragma once

#include <Python.h>

#include <memory>

#include "capture/calls/interpose.h"
#include "capture/collectives/late_calls.h"
#include "capture/recorders/call_recorder.h"
#include "capture/recorders/module_recorder.h"
#include "capture/recording/recording.h"

namespace msprobe::capture {

class ApiRecorder final : public CallObserver {
 public:
  ApiRecorder(Recording* recording, CallRecorder* calls, const ModuleRecorder* modules)
      : recording_(recording), calls_(calls), modules_(modules), late_(calls) {}

  bool waits_for_late_calls() const { return !late_.empty(); }
  void FlushLate() { late_.Flush(); }

  void* Enter(const Api& api, const CallArgs& args) override;
  void Leave(void* token, const CallArgs& args, PyObject* result) override;
  void Learn(const Api& api, const CallArgs& args, PyObject* result) override;

 private:
  void* EnterCall(const Api& api, const CallArgs& args);
  void LeaveCall(std::unique_ptr<OpenCall> call, const CallArgs& args, PyObject* result);

  Recording* recording_;
  CallRecorder* calls_;
  const ModuleRecorder* modules_;
  LateCalls late_;
};

}  // namespace msprobe::capture
