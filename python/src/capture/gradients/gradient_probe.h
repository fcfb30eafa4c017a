// Task grad_probe: the gradients of a model's parameters, as an optimizer is about to use them. A
// step is a step of an optimizer; start, stop and step of the debugger have no part in it.
//
//   MSPROBE_RETURN_IF_ERROR(GradientProbe::Get().Watch(session, models));   // by the names before
//   // Both from the optimizer's own hooks.
//   GradientProbe::Get().StepBegins(&session, optimizer, rank);
//   GradientProbe::Get().StepEnds(optimizer);
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

  // From now on, the parameters of these models, under prefix and name. An error under any other
  // task.
  Status Watch(const dump::Session& session, std::vector<std::pair<std::string, PyRef>> models);
  // Before an optimizer changes anything. An optimizer that another one runs is part of its step.
  void StepBegins(dump::Session* session, PyObject* optimizer, std::optional<int> rank);
  void StepEnds(PyObject* optimizer);
  void BeginAtStep(int64_t step) { step_ = step; }
  void Abandon() { off_ = true; }  // in a forked child

 private:
  // A parameter, with its name.
  using Named = std::pair<std::string, PyRef>;

  std::vector<Named> Parameters() const;
  void WarnOfUnknown(const dump::GradientRules& rules) const;
  Status Summarise(const dump::Session& session, std::optional<int> rank);
  Status Add(dump::GradientSummary* summary, const std::string& name, PyObject* gradient);

  std::vector<std::pair<std::string, PyRef>> models_;
  PyObject* running_ = nullptr;  // the outermost optimizer that is in its step; only compared
  int64_t step_ = 0;
  bool off_ = false, said_end_ = false, said_replaces_ = false, said_unreadable_ = false;
};

}  // namespace msprobe::capture
