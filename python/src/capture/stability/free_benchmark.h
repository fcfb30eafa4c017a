// Task free_benchmark: runs calls of the program a second time, with changed tensors, and reports
// those whose results change too much. The training is not changed, except by handler_type "fix",
// which puts the second result in the place of the first.
//
//   FreeBenchmark check(&recording);
//   check.Configure();                 // by the session's configuration
//   check.Begin(rank);                 // a step is recorded: free_benchmark.csv
//   Interposer::Install(&check);
//   check.EndStep(), check.Report();
#pragma once

#include <Python.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "capture/devices/late_tensor.h"
#include "capture/gradients/backward.h"
#include "capture/recording/recording.h"
#include "capture/stability/changed_input.h"
#include "capture/stability/framework_state.h"
#include "capture/stability/held_call.h"
#include "capture/stability/repeated_gradients.h"
#include "capture/values/tensor_access.h"
#include "engine/base/messages/message.h"
#include "engine/stability/calibration.h"
#include "engine/stability/sampling_budget.h"
#include "engine/stability/stability_report.h"

namespace msprobe::capture {

class FreeBenchmark final : public CallObserver, public GradientVerdicts {
 public:
  explicit FreeBenchmark(Recording* recording) : recording_(recording) {}

  void Configure();
  bool on() const { return on_; }
  bool of_gradients() const { return on_ && rules().backward; }
  void Begin(std::optional<int> rank);
  void Stop() { gradients_.Forget(); }  // gradients that have not come are not judged
  void EndStep();
  void Report();  // once, at the end of the run

  void* Enter(const Api& api, const CallArgs& args) override;
  void Leave(void* token, const CallArgs& args, PyObject* result) override;
  void OnWatchedCall(const Api&, const CallArgs&, PyObject*) override {}
  void JudgeGradients(const RepeatedGradient& call) override;

 private:
  // A call that was chosen, until it has returned.
  struct Chosen {
    const Api* api = nullptr;
    std::string name, backward;
    int64_t site = -1, collectives = 0;
    HeldCall held;
    RandomState before;
    InputEdges edges;
  };
  // Tensors that are compared: the first result, and the second.
  struct Pair {
    PyObject* first;  // borrowed
    PyObject* again;
    int64_t index;  // -1: there is no other
  };

  const dump::FreeBenchmarkRules& rules() const { return recording_->config().free_benchmark; }
  bool preheating() const { return rules().preheat && steps_ < rules().preheat_steps; }
  bool TakesPreheat();
  void* EnterCall(const Api& api, const CallArgs& args);
  Message WhyNotApi(const Api& api) const;
  bool OpenReport();
  // Null: judged. Otherwise why not, in words that follow a number of calls.
  Message LeaveCall(Chosen* call, PyObject* result);
  Message RunAgain(Chosen* call, const RandomState& after, PyObject* result);
  Message ExpectGradients(Chosen* call, const RandomState& after, PyObject* result);
  Message JudgeArrived(const RepeatedGradient& call);
  // `changed`: the tensors that took the places of the call's.
  PyRef RunWith(const Chosen& call, const RandomState& after, ChangedInput* input,
                std::vector<PyRef>* changed);
  bool AgreesWithCpu(const Chosen& call, const RandomState& after, PyObject* result);
  // A comparison whose results lie on a device, until they have come.
  struct Comparison {
    std::string name;
    int64_t site, step;
    stability::Question question;
    struct Results {
      std::shared_ptr<HeldElements> first, again;
      std::string dtype;  // of the first one, "torch.float16"
      int64_t index;
    };
    std::vector<Results> results;
    LateTensors needs;
    bool consistent = true;
  };

  // Writes a row for each pair that is inconsistent, later where one lies on a device. False: no
  // pair can be compared.
  bool JudgePairs(const std::vector<Pair>& pairs, const std::string& name, int64_t site,
                  const stability::Question& question);
  // False: there is no room, they are to be read at once.
  bool Hold(const TensorAccess& first, const TensorAccess& again, int64_t index,
            Comparison* comparison);
  // Writes a row if they are inconsistent.
  void JudgePair(Comparison* comparison, const TensorView& first, const TensorView& again,
                 std::string_view dtype, int64_t index);
  void Decide(Comparison* comparison);
  std::vector<Pair> PairsOf(const Chosen& call, PyObject* first, PyObject* again,
                            const std::vector<PyRef>& changed) const;
  void Fix(const Chosen& call, const std::vector<Pair>& pairs);
  std::optional<double> LimitOf(std::string_view name) const;
  void Skip(const Message& why) { report_.Skipped(why); }

  Recording* recording_;
  bool on_ = false, said_ = false;
  int rank_ = 0;
  bool opened_ = false;                   // free_benchmark.csv of this step
  double share_ = -1;                     // what the budget was made with
  int64_t steps_ = 0, preheated_ = 0;     // steps so far; calls of this step that have set limits
  int64_t calls_ = 0, calls_before_ = 0;  // while limits are set: of this step, of the step before
  std::unordered_set<const Api*> changing_;  // APIs of which a call has changed its arguments
  stability::SamplingBudget budget_;
  stability::StabilityReport report_;
  stability::Calibration limits_;
  RepeatedGradients gradients_{recording_, this};
};

}  // namespace msprobe::capture
