// Makes entries of what changes the weights: steps of optimizers
// ("Optimizer.AdamW.step.0.forward"), clipping of gradients, GradScaler. The inputs are the
// gradients, weights, hyper-parameters and state before the call, the outputs those after it, under
// the names of the parameters.
//
//   OptimizerCalls::Install(&optimizers);
//   optimizers.SetStopped(true);      // from now on, a call opens the files of the step again
#pragma once

#include <Python.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capture/calls/optimizer_calls.h"
#include "capture/modules/parameter_names.h"
#include "capture/recorders/call_recorder.h"
#include "capture/recording/recording.h"

namespace msprobe::capture {

class OptimizerRecorder final : public OptimizerObserver {
 public:
  // `names`: of the models' parameters. `open` goes on with the step after a stop, and `close` ends
  // that. `open` returns false when the step is not recorded.
  OptimizerRecorder(Recording* recording, CallRecorder* calls, ParameterNames* names,
                    std::function<bool()> open, std::function<void()> close)
      : recording_(recording),
        calls_(calls),
        names_(names),
        open_(std::move(open)),
        close_(std::move(close)) {}

  void SetStopped(bool stopped) { stopped_ = stopped; }
  // `again(values, error)`: a generator of the values, which then raises the error, if it is not
  // None.
  void SetGenerator(PyRef again) { again_ = std::move(again); }

  // A step of a MindSpore optimizer, which is a Cell that is called with its gradients. False: it
  // is not recorded, and LeaveCell is not called. Listed calls inside it are not recorded.
  bool EnterCell(PyObject* optimizer, PyObject* gradients);
  void LeaveCell(std::string_view exception);

  void* EnterOptimizer(const OptimizerApi& api, const CallArgs& args,
                       Replacement* replacement) override;
  void AfterClosure(void* token) override;
  void LeaveOptimizer(void* token, PyObject* result) override;

 private:
  struct Step {
    const OptimizerApi* api = nullptr;
    std::unique_ptr<OpenCall> call;
    PyRef self;       // the GradScaler
    PyRef optimizer;  // null: clipping
    PyRef arguments;  // a dict; of clipping, and of update()
    PyRef gradients;  // what a Cell is called with; null: another framework's optimizer
    std::vector<std::pair<std::string, PyRef>> parameters;
    bool waits_for_closure = false, has_inputs = false;
  };
  using Named = std::vector<std::pair<std::string, PyRef>>;  // parameters

  Step* Enter(const OptimizerApi& api, const CallArgs& args, Replacement* replacement);
  void Leave(Step* step, PyObject* result, std::string_view exception);
  bool Resume();
  void Begin(Step* step, const std::string& name);  // its entry
  void WriteInputs(Step* step);
  PyRef Inputs(const Step& step);
  PyRef Outputs(const Step& step, PyObject* result);
  Named ParametersOf(PyObject* optimizer);
  Named ParametersIn(PyObject* iterable, Replacement* replacement);
  std::string NameOf(PyObject* parameter, const std::string& otherwise);

  Recording* recording_;
  CallRecorder* calls_;
  ParameterNames* names_;
  std::function<bool()> open_;
  std::function<void()> close_;
  std::vector<std::unique_ptr<Step>> cells_;  // that run, innermost last
  PyRef again_;
  bool stopped_ = false;  // stop() was called in a step that was recorded, and step() was not
  int resumed_ = 0;       // number of running calls since the step was opened again
};

}  // namespace msprobe::capture
