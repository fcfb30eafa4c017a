// Decides when a program is observed: from start to stop, step by step, as the configuration says.
// The classes in recorders/ make entries of the observed calls, modules and gradients.
//
// All functions run with the GIL held, on any thread from which the program calls PyTorch. An error
// of our own never reaches the program: the Python error is cleared, collection ends with a line in
// the log, and the program's call goes on.
#pragma once

#include <Python.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capture/apis/api_table.h"
#include "capture/apis/autograd_functions.h"
#include "capture/apis/custom_apis.h"
#include "capture/gradients/parameter_hooks.h"
#include "capture/modules/module_tree.h"
#include "capture/modules/parameter_names.h"
#include "capture/recorders/api_recorder.h"
#include "capture/recorders/call_recorder.h"
#include "capture/recorders/gradient_recorder.h"
#include "capture/recorders/graph_recorder.h"
#include "capture/recorders/module_recorder.h"
#include "capture/recorders/optimizer_recorder.h"
#include "capture/recording/config_reload.h"
#include "capture/recording/recording.h"
#include "capture/stability/free_benchmark.h"
#include "capture/tasks/baseline_check.h"
#include "capture/tasks/debug_saves.h"
#include "capture/tasks/findings.h"
#include "capture/tasks/gradients_before.h"
#include "capture/tasks/overflow_check.h"
#include "capture/tasks/parameter_gradients.h"
#include "capture/tasks/reference_check.h"

namespace msprobe::capture {

class Collector final : public ParameterObserver {
 public:
  static Collector& Get();

  // `watch`: set when the configuration file is to be read again after each change.
  void Configure(dump::Config config, std::unique_ptr<dump::ConfigWatch> watch = nullptr);
  // For the fronts of the older tools: another configuration holds at once. Files begin anew, call
  // numbers go on. `goes_on`: it is the next part of the same recording, so the count of overflows
  // goes on as well.
  void ReconfigureNow(dump::Config config, bool goes_on);
  void ReleasePkl();  // the .pkl files are complete, and may be moved or removed
  // Reads the configuration again when it is time to look and the file has changed. True:
  // collection was stopped, and the configuration may want other modules and APIs.
  bool Refresh(bool has_model, std::optional<int> rank);
  // Takes other keyword arguments of the debugger, between Stop and Start: config_reload.h.
  Status Override(const dump::ConfigOverrides& more, bool has_model, std::optional<int> rank);
  dump::Session& session() { return *run_.session; }
  void EndThreads() { run_.drain.Stop(); }  // at the end of the process
  void Abandon();  // in a forked child: nothing is recorded, no file is touched
  StackTable& stacks() { return run_.stacks; }

  ApiTable& apis() { return apis_; }
  CustomApis& custom_apis() { return custom_apis_; }
  AutogradFunctions& autograd_functions() { return autograd_functions_; }
  ModuleTree& module_tree() { return module_tree_; }
  // Level debug: debug_saves.h.
  void Save(PyObject* variable, PyObject* name, bool with_gradients, std::optional<int> rank);
  void FlushSaves() { saves_.Flush(); }
  OptimizerRecorder& optimizers() { return optimizers_; }
  OverflowCheck& overflow_check() { return overflow_; }
  GraphRecorder& graphs() { return graphs_; }

  // Models, each with the prefix of the names of its modules.
  using NamedModels = std::vector<std::pair<std::string, PyObject*>>;
  // The modules of the models are known until ForgetModules; the models of a second Start before
  // that are ignored. Without a model, the first called module of one of the `classes` that has
  // parameters and modules inside becomes the model. `compiled`: graphs() is told of the calls of
  // modules, which nobody else sees.
  Result<bool> Start(std::optional<int> rank, const NamedModels& models, bool compiled = false,
                     const std::vector<PyTypeObject*>& classes = {});
  Status Stop();
  // Records only calls from the model's forward number `range->first` to number `range->second`,
  // counted from the Start. BeginToken is to be called when a forward begins.
  void SetTokenRange(std::optional<std::pair<int64_t, int64_t>> range);
  void BeginToken();
  // Until EndModuleDump, only calls of this module are recorded, under `name`.
  void BeginModuleDump(PyObject* module, const std::string& name) {
    modules_.RecordOnly(module, name);
  }
  void EndModuleDump() { modules_.RecordAll(); }
  void StopCalls();  // ends the observation of forward calls; gradients are still recorded
  void Step();
  void RepeatStep();        // as Step, but the next step has the same number
  void SetOver(bool over);  // true: as Stop, and nothing more is recorded; false: goes on
  void SayEnd();  // at the end of the run: what it has not done, and what a task has found
  void BeginAtStep(int64_t step);
  void ForgetModules();
  std::optional<int> rank() const { return rank_; }  // of the last Start that recorded
  void Fault(const char* what) noexcept { run_.Fault(what); }
  template <typename Work>
  auto Guarded(Work&& work) noexcept {
    return run_.Guarded(std::forward<Work>(work));
  }
  bool modules_wanted() const { return run_.modules_wanted; }
  bool apis_wanted() const { return run_.apis_wanted; }
  bool optimizers_wanted() const { return run_.optimizers_wanted; }

  void OnGradient(PyObject* module, const std::string& parameter, PyObject* gradient) override;
  // The same of a graph that MindSpore has compiled; `cell`: "Cell.fc1.Dense".
  void OnCompiledGradient(const std::string& cell, const std::string& parameter,
                          FrameworkTensor* gradient);

 private:
  Collector() = default;

  void ApplyConfig(bool goes_on = false);  // sets all members that depend on the configuration
  // Runs `change` while no pointer is swapped.
  void WhileRemoved(const std::function<void()>& change);
  void SeeCalls();          // observes forward calls from now on
  void NoteCompiledCode();  // it is entered now
  Result<bool> StartSession(std::optional<int> rank);
  void WriteWeights(const NamedModels& models);  // once in a dump: weights.json
  // Where their parameters lie, and how the processes are arranged.
  void FindDevice(const NamedModels& models);
  void SetProvenance();             // of the dump that begins
  void TakeModel(PyObject* model);  // that a call has shown
  void WarnWithoutModules();
  void WriteCoverage();
  // Completes the dump that is written; `begin_next` tells the session which one comes next.
  void EndDump(const std::function<void()>& begin_next);
  void BeginStage();  // if the session has another stage
  Status Close();     // completes the files of the step; a later Start goes on with them
  void ForgetOptimizers();
  void WriteSignatures();  // signatures.json

  Recording run_;
  ConfigReload reload_{&run_, [this] { (void)Stop(); }};  // a failure is logged where it happens
  uint64_t configured_ = 0;  // number of the configuration that ApplyConfig has applied
  ApiTable apis_{&run_};
  CustomApis custom_apis_{&run_, &apis_,
                          [this](const std::function<void()>& change) { WhileRemoved(change); }};
  AutogradFunctions autograd_functions_{&apis_};
  Findings findings_{&run_, [this] {
                       WriteCoverage();
                       reference_.Report();
                     }};
  OverflowCheck overflow_{&run_, &findings_};
  ReferenceCheck reference_{&run_, &findings_};
  BaselineCheck baseline_{&run_, [this] {
                            WriteCoverage();
                            WriteSignatures();
                          }};
  ModuleTree module_tree_{&run_.counters, this};
  ModuleTree followed_{&run_.counters, nullptr};  // level L1: names for the entries of APIs
  ParameterGradients parameter_gradients_{&run_, &module_tree_, &overflow_};
  ParameterNames parameter_names_;
  GradientsBefore gradients_before_{&run_, &parameter_names_};
  GradientRecorder gradients_{&run_, &overflow_, &gradients_before_};
  CallRecorder calls_{&run_, &overflow_, &reference_, &baseline_, &gradients_};
  ModuleRecorder modules_{&run_, &module_tree_, &followed_, &calls_,
                          [this](PyObject* model) { TakeModel(model); }};
  GraphRecorder graphs_{&run_};
  ApiRecorder api_calls_{&run_, &calls_, &modules_};
  FreeBenchmark free_benchmark_{&run_};
  DebugSaves saves_{&run_, [this](std::optional<int> rank) {
                      const Result<bool> started = StartSession(rank);
                      return started.ok() && *started;
                    }};
  // Steps of optimizers that run after Stop belong to the step, until Step.
  OptimizerRecorder optimizers_{&run_, &calls_, &parameter_names_,
                                [this] {
                                  const Result<bool> started = StartSession(rank_);
                                  return started.ok() && *started;
                                },
                                [this] { (void)Close(); }};
  std::optional<int> rank_;  // of the last Start
  std::optional<std::pair<int64_t, int64_t>> token_range_;
  std::string parallel_;       // of the header
  std::string model_device_;   // type of the device of the model, "npu"; "": no model
  int64_t weights_dump_ = -1;  // the dump whose weights were read last
  int64_t tokens_ = 0;         // number of forwards of the model since Start
  bool tells_gradients_before_ = false;
  bool wrote_weights_ = false, said_coverage_ = false, said_no_modules_ = false,
       said_model_ = false;
};

}  // namespace msprobe::capture
