// Task grad_probe: records the gradients of a model's parameters right before an optimizer uses
// them. A step is one step of an optimizer; start, stop and step of the debugger have no effect on
// this task.
//
//   MSPROBE_RETURN_IF_ERROR(GradientProbe::Get().Watch(session, models));
//   // Called from hooks of the optimizer:
//   GradientProbe::Get().StepBegins(&session, optimizer, rank);
//   GradientProbe::Get().StepEnds(optimizer);
//
// An optimizer of MindSpore is called with the gradients: WatchNames and TakeStep.
#pragma once

#include <Python.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "capture/python/py_ref.h"
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
  void SayUnmet(dump::Session* session);  // at the end of the run
  void Abandon() { off_ = true; }         // in a forked child

 private:
  // A parameter or its gradient, with the name of the parameter.
  using Named = std::pair<std::string, PyRef>;

  std::vector<Named> Parameters() const;
  std::vector<Named> Gradients() const;
  std::vector<Named> Zip(PyObject* gradients);
  // One step, if it is wanted: `gradients` is called with no error set and gives what is recorded.
  template <typename Collect>
  void Step(dump::Session* session, std::optional<int> rank, Collect&& gradients);
  Status Summarise(const dump::Session& session, std::optional<int> rank,
                   const std::vector<Named>& gradients);
  Status Add(dump::GradientSummary* summary, const std::string& name, PyObject* gradient);
  template <typename Access>
  Status AddTensor(dump::GradientSummary* summary, const std::string& name, const Access& access);

  std::vector<std::pair<std::string, PyRef>> models_;
  std::vector<std::string> names_;  // of the gradients that TakeStep gets
  PyObject* running_ = nullptr;     // the outermost optimizer whose step runs; never dereferenced
  int64_t step_ = 0;
  std::optional<DType> autocast_;  // of the step that runs
  dump::RunExtent extent_;
  bool off_ = false, said_end_ = false, said_replaces_ = false, said_unreadable_ = false,
       said_count_ = false;
};

}  // namespace msprobe::capture
