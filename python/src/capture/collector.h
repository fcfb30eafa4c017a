// Puts the pieces together: observed calls, module calls and gradients become entries of the
// session's dump. What belongs to one subject alone is in that subject's class.
//
// Everything here runs with the GIL held, on whatever thread the program calls PyTorch from; state
// that belongs to a call lives per thread. A fault of ours never reaches the program: the Python
// error is cleared, collection ends loudly, the call goes on.
#pragma once

#include <Python.h>

#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "capture/apis/api_table.h"
#include "capture/apis/custom_apis.h"
#include "capture/calls/interpose.h"
#include "capture/calls/module_calls.h"
#include "capture/collectives/late_calls.h"
#include "capture/gradients/backward.h"
#include "capture/gradients/parameter_hooks.h"
#include "capture/modules/module_tree.h"
#include "capture/recording/open_call.h"
#include "capture/recording/recording.h"
#include "capture/tasks/debug_saves.h"
#include "capture/tasks/finding_count.h"
#include "capture/tasks/overflow_check.h"
#include "capture/tasks/parameter_gradients.h"
#include "engine/dump/config/config_watch.h"
#include "engine/dump/session/reference_search.h"

namespace msprobe::capture {

class Collector final : public CallObserver,
                        public ModuleObserver,
                        public GradientSink,
                        public ParameterObserver,
                        private CallWriter {
 public:
  static Collector& Get();

  // What only the disk can say of a configuration: that its "dump_path" can be written and its
  // "bench_path" compared with. `rank`: of this process, where it is known.
  static Status CheckPlaces(const dump::Config& config, std::optional<int> rank);
  // `watch`: set when the file is to be read again as it changes.
  void Configure(dump::Config config, std::unique_ptr<dump::ConfigWatch> watch = nullptr);
  // An older front end's: files begin anew, call numbers go on. `goes_on`: the next part of the
  // same recording; overflows are counted on.
  void Restyle(dump::Config config, bool goes_on);
  void ReleasePkl();
  // Reads the configuration again if it is time and the file has changed; collection stops then.
  // True: it has stopped, and what the configuration asks for may be another thing.
  bool Refresh(bool has_model, std::optional<int> rank);
  dump::Session& session() { return *run_.session; }
  void Abandon();  // in a forked child: nothing is recorded, no file is touched
  StackTable& stacks() { return run_.stacks; }

  ApiTable& apis() { return apis_; }
  CustomApis& custom_apis() { return custom_apis_; }
  ModuleTree& module_tree() { return module_tree_; }
  DebugSaves& saves() { return saves_; }
  OverflowCheck& overflow_check() { return overflow_; }

  // Prefix of the names in it, and a model.
  using NamedModels = std::vector<std::pair<std::string, PyObject*>>;
  // Modules of the models are known until ForgetModules; a second Start before has no effect on
  // them.
  Result<bool> Start(std::optional<int> rank, const NamedModels& models);
  Status Stop();
  // From now on, only what happens from the model's forward number `range->first` to number
  // `range->second` after a Start is recorded; BeginToken says that a forward begins.
  void SetTokenRange(std::optional<std::pair<int64_t, int64_t>> range);
  void BeginToken();
  // Until EndModuleDump, this module's own calls are recorded, under `name`, and nothing else.
  void BeginModuleDump(PyObject* module, const std::string& name);
  void EndModuleDump() { only_module_ = nullptr; }
  void StopCalls();  // forward calls are not seen any more; gradients of those that were still come
  void Step();
  void BeginAtStep(int64_t step);
  void ForgetModules();
  // A fault of ours: collection ends, loudly, once.
  void Fault(const char* what) noexcept override;
  // Does a piece of our own work; what it throws (no memory) is a fault and reaches nobody else.
  template <typename Work, typename Answer = std::invoke_result_t<Work>>
  Answer Guarded(Work&& work) noexcept {
    try {
      return work();
    } catch (const std::exception& error) {
      Fault(error.what());
    }
    return Answer();
  }
  bool modules_wanted() const { return run_.modules_wanted; }
  bool apis_wanted() const { return run_.apis_wanted; }

  void* Enter(const Api& api, const CallArgs& args) override;
  void Leave(void* token, const CallArgs& args, PyObject* result) override;
  void Learn(const Api& api, const CallArgs& args, PyObject* result) override;
  void* EnterModule(PyObject* module, const CallArgs& args) override;
  void LeaveModule(void* token, PyObject* module, PyObject* result) override;
  void GradientCame(PyObject* module, const std::string& parameter, PyObject* tensor) override;
  bool Accepts(int64_t step) const override {
    return run_.session->collecting() && run_.session->step() == step;
  }
  Gradient Compose(const std::string& name, bool is_input, size_t index,
                   PyObject* gradient) override;
  void Settle(const std::string& name) override;
  void Complete(const std::string& name, const std::string& parent, std::vector<Gradient> inputs,
                std::vector<Gradient> outputs) override;

 private:
  Collector() {
    run_.fault = [this](const char* what) { Fault(what); };
  }

  struct ThreadState {
    std::vector<std::unique_ptr<OpenCall>> spare;
    std::vector<std::unique_ptr<OpenCall>> modules;  // innermost last; emptied by stop
  };

  static ThreadState& Thread();
  void WhileRemoved(const std::function<void()>& change);
  void SeeCalls();
  void NoteWeights(const NamedModels& models);  // once in a run: weights.json
  Result<bool> StartSession(std::optional<int> rank);
  void* EnterCall(const Api& api, const CallArgs& args);
  void* EnterModuleCall(const NamedModule& module, const CallArgs& args);
  void LeaveModuleCall(uintptr_t ticket, PyObject* module, PyObject* result,
                       std::string_view exception);
  void LeaveCall(std::unique_ptr<OpenCall> call, const CallArgs& args, PyObject* result);
  std::unique_ptr<OpenCall> Begin(const std::string& stem, int64_t number, bool is_module);
  bool WriteInputs(OpenCall* call, const CallArgs& args);
  void WriteOutput(OpenCall* call, PyObject* output, PyObject* module);
  void WriteList(OpenCall* call, const std::vector<PyRef>& values) override;
  void NoteStack(OpenCall* call);
  // What no module encloses belongs to what the program was doing: a root of construct.json.
  void NoteRegion(OpenCall* call, const std::string& region);
  void Finish(OpenCall* call) override;
  void Recycle(std::unique_ptr<OpenCall> call) override;
  void WriteCoverage();
  // A call whose gradients have begun to come.
  struct ArrivedCall {
    std::string name;  // of its entry
    bool wanted = true;
    int64_t stack = -1;  // of the forward call
  };
  // Null: its name is its entry's, which is wanted, as all are.
  const ArrivedCall* Arrive(const std::string& name);
  bool RecordGradients(const ArrivedCall& call, const std::string& parent,
                       std::vector<Gradient>* inputs, std::vector<Gradient>* outputs,
                       SeenGradients* seen);
  // Whether a call is recorded is known when it is over.
  bool waits_to_record() const { return run_.looks_for_overflow() || search_ != nullptr; }
  bool SettleForward(OpenCall* call);
  // With "bench_path".
  Result<bool> BeginSearch(std::optional<int> rank);
  bool DiffersFromReference(OpenCall* call);
  void CountDifference(const std::string& name, int64_t site);
  void ReportSearch();
  void Adopt(bool goes_on = false);  // what follows from the session's configuration

  Recording run_;
  std::unique_ptr<dump::ConfigWatch> watch_;
  std::unique_ptr<dump::ReferenceSearch> search_;  // with "bench_path"
  std::string refusal_;                            // last said about the watched file
  uint64_t configured_ = 0;  // the session's configuration that Adopt has seen
  ApiTable apis_{&run_};
  CustomApis custom_apis_{&run_, &apis_,
                          [this](const std::function<void()>& change) { WhileRemoved(change); }};
  FoundCalls found_{&run_, [this] {
                      WriteCoverage();
                      ReportSearch();
                    }};
  OverflowCheck overflow_{&run_, &found_};
  ModuleTree module_tree_{&run_.counters, this};
  ParameterGradients parameter_gradients_{&run_, &module_tree_, &overflow_};
  LateCalls late_{this};
  DebugSaves saves_{&run_, [this](std::optional<int> rank) {
                      const Result<bool> started = StartSession(rank);
                      return started.ok() && *started;
                    }};
  std::map<std::string, int64_t> region_steps_;  // region -> the last step that has it
  Entry gradient_entry_;                         // reused
  std::unordered_map<std::string, ArrivedCall> arrived_;
  // Of an older front end, which has stacks of backward calls as well: those of the forward calls.
  std::unordered_map<std::string, int64_t> backward_stacks_;
  std::optional<std::pair<int64_t, int64_t>> token_range_;
  int64_t tokens_ = 0;  // forwards of the model since Start
  PyObject* only_module_ = nullptr;
  std::unordered_set<PyObject*> dumped_;  // recorded while they are the only one, never else
  uintptr_t last_ticket_ = 0;
  bool noted_weights_ = false, said_coverage_ = false;
  bool sees_calls_ = false;  // from Start to StopCalls
};

}  // namespace msprobe::capture
