// Task grad_probe: records the gradients of a model's parameters right before an optimizer uses
// them. A step is one step of an optimizer; start, stop and step of the debugger have no effect on
// this task. Gradients of a device are copied without waiting for them: the files of a step are
// complete when the copies have come.
//
//   MSPROBE_RETURN_IF_ERROR(GradientProbe::Get().Watch(session, models));
//   // Called from hooks of the optimizer:
//   GradientProbe::Get().StepBegins(&session, optimizer, rank);
//   GradientProbe::Get().StepEnds(optimizer);
//
// An optimizer of MindSpore is called with the gradients: WatchNames and TakeStep.
#pragma once

#include <Python.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "capture/devices/device_reader.h"
#include "capture/devices/drain_thread.h"
#include "capture/devices/late_decisions.h"
#include "capture/python/py_ref.h"
#include "capture/values/tensor_access.h"
#include "engine/dump/session/session.h"
#include "engine/dump/write/gradient_summary.h"

namespace msprobe::capture {

class GradientProbe {
 public:
  static GradientProbe& Get();

  // From now on, gradients of the parameters of these models are recorded, under their prefix and
  // name. Every task but grad_probe is an error.
  Status Watch(const dump::Session& session, std::vector<std::pair<std::string, PyRef>> models);
  // Before an optimizer changes a parameter. When an optimizer runs another one, the inner one's
  // step belongs to the step of the outer one.
  void StepBegins(dump::Session* session, PyObject* optimizer, std::optional<int> rank);
  void StepEnds(PyObject* optimizer);
  // The optimizer will be called with the gradients of the parameters of these names.
  Status WatchNames(const dump::Session& session, std::vector<std::string> names);
  // The optimizer was called with a list or tuple of as many gradients, each a tensor or an array
  // of NumPy; anything else, as None, has no row. False: no later step is wanted.
  bool TakeStep(dump::Session* session, PyObject* gradients, std::optional<int> rank);
  // A module ran under autocast: a pass of this step computes in this dtype.
  void NoteAutocast(DType dtype) { autocast_ = dtype; }
  void BeginAtStep(int64_t step) { step_ = step; }
  // At the end of the run: completes the files, then as Session::SayUnmet.
  void SayUnmet(dump::Session* session);
  // In a forked child. The files are the parent's.
  void Abandon() { off_ = abandoned_ = true, drain_.Abandon(); }

 private:
  GradientProbe();

  // The files of a step, with its own copy of the rules.
  struct StepFiles {
    dump::GradientRules rules;
    dump::GradientSummary summary;
    StepFiles(const dump::GradientRules& of, std::string folder, int64_t step,
              std::optional<DType> autocast)
        : rules(of), summary(rules, std::move(folder), step, autocast) {}
  };
  using Files = std::shared_ptr<StepFiles>;

  // A parameter or its gradient, with the name of the parameter.
  using Named = std::pair<std::string, PyRef>;

  std::vector<Named> Parameters() const;
  std::vector<Named> Gradients() const;
  std::vector<Named> Zip(PyObject* gradients);
  // One step, if it is wanted: `gradients` is called with no error set and gives what is recorded.
  template <typename Collect>
  void Step(dump::Session* session, std::optional<int> rank, Collect&& gradients);
  void Summarise(const dump::Session& session, std::optional<int> rank,
                 const std::vector<Named>& gradients);
  void Add(const Files& files, const std::string& name, PyObject* gradient);
  // Null: there is no room for its elements, though all others were waited for.
  std::shared_ptr<HeldElements> Hold(const TensorAccess& access, LateTensors* needs);
  // False: it is to be read at once.
  bool AddLater(const Files& files, const std::string& name, const TensorAccess& access);
  template <typename Access>
  void AddTensor(const Files& files, const std::string& name, const Access& access);
  void AddRow(const Files& files, const std::string& name, const TensorView& view);
  void LeaveOut(const std::string& name, std::string_view type, std::string_view dtype);
  void Note(const Status& status);
  void TakeArrived();
  void FetchAll();

  std::vector<std::pair<std::string, PyRef>> models_;
  std::vector<std::string> names_;  // of the gradients that TakeStep gets
  PyObject* running_ = nullptr;     // the outermost optimizer whose step runs; never dereferenced
  int64_t step_ = 0;
  std::optional<DType> autocast_;  // of the step that runs
  dump::RunExtent extent_;
  DeviceReader reader_;
  LateDecisions late_;  // rows and files, in their order
  DrainThread drain_;
  Status failed_ = Status::Ok();  // of files that were completed after their step
  bool off_ = false, abandoned_ = false, said_end_ = false, said_replaces_ = false,
       said_unreadable_ = false, said_count_ = false;
};

}  // namespace msprobe::capture
