// Puts the pieces together: observed calls, module hooks and gradient hooks become entries of the
// session's dump.
//
// Everything here runs with the GIL held, on whatever thread the program calls PyTorch from; state
// that belongs to a call lives per thread. A fault of ours never reaches the program: the Python
// error is cleared, collection ends loudly, the call goes on.
#pragma once

#include <Python.h>

#include <exception>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "capture/backward.h"
#include "capture/coverage_counter.h"
#include "capture/device_stats.h"
#include "capture/interpose.h"
#include "capture/module_calls.h"
#include "capture/module_tree.h"
#include "capture/parameter_hooks.h"
#include "capture/stack.h"
#include "capture/value_writer.h"
#include "engine/dump/api_rules.h"
#include "engine/dump/config_watch.h"
#include "engine/dump/reference_search.h"
#include "engine/dump/session.h"

namespace msprobe::capture {

// What sets the functions of a list apart.
struct ApiTraits {
  bool is_collective = false;        // runs in a process group
  bool output_is_arguments = false;  // results are written into the arguments
};

// The values of a call, those of keywords behind the positional ones.
std::vector<PyRef> Flatten(const CallArgs& args);

struct SavedGradients;  // collector_debug.cc

class Collector final : public CallObserver,
                        public ModuleObserver,
                        public GradientSink,
                        public ParameterObserver {
 public:
  static Collector& Get();

  // What only the disk can say of a configuration: that its "bench_path" can be compared with.
  static Status CheckReference(const Config& config);
  // `watch`: set when the file is to be read again as it changes.
  void Configure(Config config, std::unique_ptr<ConfigWatch> watch = nullptr);
  // Reads the configuration again if it is time and the file has changed; collection stops then.
  // True: it has stopped, and what the configuration asks for may be another thing.
  bool Refresh(bool has_model);
  bool configured() const { return session_ != nullptr; }
  Session& session() { return *session_; }
  void Abandon();  // in a forked child: nothing is recorded, no file is touched
  StackTable& stacks() { return stacks_; }

  // Lists `name` of `owner` (a dotted name is looked up step by step) under `prefix`. "" or why it
  // is not observed.
  std::string AddApi(const std::string& prefix, PyObject* owner, const std::string& name,
                     ApiTraits traits);
  // Methods and functions by which the program learns that what a call left to be waited for is
  // complete ("" or why they are not seen).
  std::string AddWait(PyObject* owner, const std::string& name, Api::Kind kind);
  // What the two files say of single APIs, those listed before and after. Warns of nothing.
  Status ReadApiRules(const std::string& risk_levels, const std::string& ignored_values);
  const ApiRules& api_rules() const { return rules_; }
  // What the program names itself: attribute `name` of `module`, under `prefix`, from now on. ""
  // or why it is not observed.
  std::string RegisterApi(const std::string& prefix, PyObject* module, PyObject* name);
  void RestoreApi(PyObject* module, PyObject* name);
  // An operator of torch.ops (`objects`: its packet and overloads), seen where it is called.
  void AddOperator(const std::string& prefix, const std::string& name,
                   const std::vector<PyObject*>& objects);
  // `run` of a class of Triton's kernels, whose results are in its arguments.
  std::string AddKernelRun(PyObject* run);
  ModuleTree& module_tree() { return module_tree_; }

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
  bool modules_wanted() const { return modules_wanted_; }
  bool apis_wanted() const { return apis_wanted_; }

  // Level debug: an entry of `variable` (a tensor, a number, text, or lists and dictionaries of
  // them), and one of the gradients of its tensors when they have come. Anything else: a warning.
  void Save(PyObject* variable, PyObject* name, bool with_gradients, std::optional<int> rank);
  // Writes what has come of gradients that are still waited for.
  void FlushSaves();

  void* Enter(const Api& api, const CallArgs& args) override;
  void Leave(void* token, const CallArgs& args, PyObject* result) override;
  void Learn(const Api& api, const CallArgs& args, PyObject* result) override;
  void* EnterModule(PyObject* module, const CallArgs& args) override;
  void LeaveModule(void* token, PyObject* module, PyObject* result) override;
  void GradientCame(PyObject* module, const std::string& parameter, PyObject* tensor) override;
  bool Accepts(int64_t step) const override {
    return session_->collecting() && session_->step() == step;
  }
  std::string Compose(const std::string& name, bool is_input, size_t index,
                      PyObject* gradient) override;
  void Settle(const std::string& name) override;
  void Complete(const std::string& name, const std::string& parent,
                const std::vector<std::string>& inputs,
                const std::vector<std::string>& outputs) override;

 private:
  void ParameterGradient(PyObject* module, const std::string& parameter, PyObject* tensor);
  // An entry that is being composed: between Enter and Leave.
  struct OpenCall {
    EntryBuilder builder;
    std::string backward, parent,
        parent_backward;  // names: of this call's gradients, of the module around it
    int64_t step = 0;
    int64_t stack = -1;      // number in stack.json
    int64_t site = -1;       // number in stacks_
    uintptr_t ticket = 0;    // of a module call: its token, no two are alike
    bool wanted = false;     // goes into dump.json
    Nonfinite given, made;   // in its inputs, in its outputs
    std::string_view found;  // why it is recorded: "NaN", of tasks that choose
    std::vector<Held> held;  // its tensors, until that is known
    bool wants_backward = false;
    const Api* api = nullptr;  // of an API call
    std::string group;         // of a collective: JSON
    InputEdges edges;
  };
  // A collective that has returned, whose results come later.
  struct LateCall {
    std::unique_ptr<OpenCall> call;
    std::vector<PyRef> values;   // all arguments: they hold the results
    std::vector<PyRef> handles;  // works that were not waited for yet
    PyRef group;                 // while a coalescing manager is putting its calls together
  };
  // Gradients of a module's parameters that have come and are not written yet.
  struct ArrivedGradients {
    std::map<std::string, std::string> json;  // by parameter
    std::string entry;                        // name of the entry they will be in
  };
  // What the gradients of a call hold, until all have come. Tasks that look for NaN only.
  struct SeenGradients {
    Nonfinite given, made;
    int64_t site = -1;                     // of the forward call
    std::vector<Held> incoming, outgoing;  // task overflow_check: waiting
    std::vector<std::string> lost;         // files that will not be
  };
  struct ThreadState {
    std::vector<std::unique_ptr<OpenCall>> spare;
    std::vector<std::unique_ptr<OpenCall>> modules;  // innermost last; emptied by stop
  };

  static ThreadState& Thread();
  Api* NewApi(const std::string& prefix, const std::string& name);
  template <typename F>
  void WhileRemoved(F&& change);
  void SeeCalls();
  void NoteWeights(const NamedModels& models);  // once in a run: weights.json
  Result<bool> StartSession(std::optional<int> rank);
  void SaveGradient(SavedGradients* saved, size_t index, PyObject* gradient);
  void WriteSaved(SavedGradients* saved);
  void* EnterCall(const Api& api, const CallArgs& args);
  void* EnterModuleCall(const NamedModule& module, const CallArgs& args);
  void LeaveModuleCall(uintptr_t ticket, PyObject* module, PyObject* result,
                       std::string_view exception);
  void LearnFrom(const Api& api, const CallArgs& args, PyObject* result,
                 std::string_view exception);
  void LeaveCall(std::unique_ptr<OpenCall> call, const CallArgs& args, PyObject* result);
  std::unique_ptr<OpenCall> Begin(const std::string& stem, int64_t number, bool is_module);
  static void Recycle(std::unique_ptr<OpenCall> call);
  bool WriteInputs(OpenCall* call, const CallArgs& args);
  void WriteOutput(OpenCall* call, PyObject* output, PyObject* module);
  void WriteList(OpenCall* call, const std::vector<PyRef>& values);
  // Takes the call when its results come later.
  bool Postpone(std::unique_ptr<OpenCall>* call, const CallArgs& args, PyObject* result);
  void Waited(PyObject* handle, std::string_view exception);
  void SettleCoalesced(PyObject* work);
  void CompleteLate(LateCall late, std::string_view exception, bool at_stop);
  void FlushLate();
  void NoteStack(OpenCall* call);
  // What no module encloses belongs to what the program was doing: a root of construct.json.
  void NoteRegion(OpenCall* call, const std::string& region);
  void Finish(OpenCall* call);
  void WriteCoverage();
  bool RecordGradients(const std::string& name, const std::string& parent,
                       const std::vector<std::string>& inputs,
                       const std::vector<std::string>& outputs, SeenGradients* seen);
  void FetchLate();  // what lies on devices
  void WriteArrivedGradients();
  void WriteGradients(const NamedModule& module, ArrivedGradients* arrived);
  bool Stores(const std::string& name) const;
  EntryStyle StyleOf(const std::string& name, bool is_output) const;
  bool looks_for_nan() const { return session_->config().task == Task::kNanCheck; }
  bool looks_for_overflow() const { return session_->config().task == Task::kOverflowCheck; }
  // Whether a call is recorded is known when it is over: collector_overflow.cc, _search.cc.
  bool waits_to_record() const { return looks_for_overflow() || search_ != nullptr; }
  bool SettleForward(OpenCall* call);
  void CountFound(std::string_view what, int64_t limit, std::string_view kind, int64_t site);
  // With "bench_path".
  Result<bool> BeginSearch(std::optional<int> rank);
  bool DiffersFromReference(OpenCall* call);
  void CountDifference(const std::string& name, int64_t site);
  void ReportSearch();
  // Task overflow_check. Kinds ("NaN") that a call made, "": it is not
  // recorded.
  std::string_view Overflow(const std::string& name, const Nonfinite& given, const Nonfinite& made,
                            int64_t site);
  std::string_view SettleBackward(const std::string& name, SeenGradients* seen,
                                  EntryBuilder* builder);
  void HoldGradient(const std::string& name, bool is_input, std::vector<Held> held,
                    const Nonfinite& nonfinite);
  void SettleOutgoing(SeenGradients* seen);
  bool StoreHeld(const Held& held);
  void StoreAll(const std::vector<Held>& all, EntryBuilder* builder);
  std::string WhereIs(int64_t site);
  void CountOverflow(const std::string& name, std::string_view kinds, int64_t site);
  void ForgetGradients();
  void CheckGradient(const NamedModule& module, const std::string& parameter, PyObject* gradient);
  // False under task structure: tensors are only met, dump.json stays empty.
  bool records_values() const { return session_->config().task != Task::kStructure; }
  void ApplyRules(Api* api);
  void Adopt();  // what follows from the session's configuration

  std::unique_ptr<Session> session_;
  std::unique_ptr<ConfigWatch> watch_;
  std::unique_ptr<ReferenceSearch> search_;  // with "bench_path"
  std::string refusal_;                      // last said about the watched file
  uint64_t configured_ = 0;                  // the session's configuration that Adopt has seen
  ValueOptions options_;
  StackTable stacks_;
  std::vector<std::unique_ptr<Api>> apis_;
  ApiRules rules_;
  CounterNames counters_;
  ModuleTree module_tree_{&counters_, this};
  std::map<std::string, int64_t> region_steps_;              // region -> the last step that has it
  std::unordered_map<PyObject*, ArrivedGradients> arrived_;  // by module
  std::unordered_map<std::string, SeenGradients> seen_gradients_;  // by entry
  int64_t held_bytes_ = 0, found_ = 0, passed_on_step_ = -1;
  bool nonfinite_gradients_ = false;  // some gradient of this step was not finite
  std::list<LateCall> late_;
  size_t coalescing_ = 0;        // of late_
  EntryBuilder scratch_;         // what is walked but not recorded is written here
  EntryBuilder gradient_entry_;  // reused
  // Registered by the program: what was there, and what stands there now where that is another.
  struct CustomApi {
    PyRef module, name, original, stand_in;
    Api* api;
  };
  std::list<CustomApi> custom_;
  std::unordered_map<PyObject*, const Api*> operators_;  // packets and overloads
  std::unordered_map<std::string, const Api*> kernels_;  // Triton's, by name
  std::list<std::shared_ptr<SavedGradients>> saves_;     // that wait for gradients
  std::optional<std::pair<int64_t, int64_t>> token_range_;
  PyObject* only_module_ = nullptr;
  std::unordered_set<PyObject*> dumped_;  // recorded while they are the only one, never else
  int64_t tokens_ = 0;                    // forwards of the model since Start
  uintptr_t last_ticket_ = 0;
  bool apis_wanted_ = false, modules_wanted_ = false;
  bool noted_weights_ = false;
  DeviceStats device_;
  CoverageCounter coverage_;
  bool said_coverage_ = false;
  bool sees_calls_ = false;  // from Start to StopCalls
};

}  // namespace msprobe::capture
