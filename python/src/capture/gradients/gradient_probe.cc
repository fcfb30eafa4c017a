#include "capture/gradients/gradient_probe.h"

#include <fmt/format.h>

#include <algorithm>

#include "capture/calls/interpose.h"
#include "capture/python/torch_api.h"
#include "capture/values/tensor_access.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/text.h"
#include "engine/dump/write/folder_claim.h"
#include "engine/model/names.h"

namespace msprobe::capture {
namespace {

// The gradient that the optimizer will use; in Megatron and similar frameworks it is `main_grad`.
// Null: there is none.
PyRef GradientOf(PyObject* parameter) {
  for (const char* attribute : {"main_grad", "grad"}) {
    PyRef gradient = PyRef::Steal(PyObject_GetAttrString(parameter, attribute));
    if (gradient && gradient.get() != Py_None) return gradient;
    ClearError();
  }
  return PyRef();
}

}  // namespace

GradientProbe& GradientProbe::Get() {
  static GradientProbe* instance =
      new GradientProbe;  // never destroyed: it holds Python references
  return *instance;
}

Status GradientProbe::Watch(const dump::Session& session,
                            std::vector<std::pair<std::string, PyRef>> models) {
  const dump::Config& config = session.config();
  if (config.task != Task::kGradProbe) {
    return InvalidArgument("monitor")
        .Expected("task \"grad_probe\"")
        .Found(fmt::format("\"{}\"", TaskName(config.task)))
        .Hint("PrecisionDebugger(task=\"grad_probe\")");
  }
  models_ = std::move(models);
  WarnOfUnknown(config.gradients);
  return Status::Ok();
}

std::vector<GradientProbe::Named> GradientProbe::Parameters() const {
  std::vector<Named> parameters;
  for (const auto& [prefix, model] : models_) {
    const PyRef pairs = PyRef::Steal(PyObject_CallMethod(model.get(), "named_parameters", nullptr));
    const PyRef iterator = pairs ? PyRef::Steal(PyObject_GetIter(pairs.get())) : PyRef();
    while (iterator) {
      const PyRef pair = PyRef::Steal(PyIter_Next(iterator.get()));
      PyObject *name, *tensor;
      if (!pair || !PyArg_ParseTuple(pair.get(), "OO", &name, &tensor)) break;
      parameters.emplace_back(prefix + std::string(Utf8(name)), PyRef::Borrow(tensor));
    }
  }
  ClearError();
  return parameters;
}

void GradientProbe::WarnOfUnknown(const dump::GradientRules& rules) const {
  if (rules.parameters.empty()) return;
  const std::vector<Named> parameters = Parameters();
  std::vector<std::string_view> names;
  for (const auto& [name, parameter] : parameters) names.push_back(name);
  for (const std::string& wanted : rules.parameters) {
    if (std::find(names.begin(), names.end(), wanted) != names.end()) continue;
    const std::string_view near = NearestSpelling(wanted, names);
    Log(LogLevel::kWarning,
        fmt::format("param_list: the model has no parameter {}{}", Excerpt(wanted),
                    near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near)));
  }
}

void GradientProbe::StepBegins(dump::Session* session, PyObject* optimizer,
                               std::optional<int> rank) {
  if (off_ || session->disabled() || (running_ != nullptr && running_ != optimizer)) return;
  running_ = optimizer;
  const dump::Filter& filter = session->filter();
  if (filter.WantsStep(step_) && filter.WantsRank(rank.value_or(-1))) {
    off_ = true;  // stays so if an error follows
    const KeepError keep;
    const QuietTorch quiet;
    const Interposer::Pause pause;
    const Status status = Summarise(*session, rank);
    if (!status.ok()) return session->Fail(status);
    off_ = false;
  } else if (filter.IsPastLastStep(step_) && !std::exchange(said_end_, true)) {
    Log(LogLevel::kInfo, "all wanted steps are recorded; the run goes on without collection");
  }
  ++step_;
}

void GradientProbe::StepEnds(PyObject* optimizer) {
  if (running_ == optimizer) running_ = nullptr;
}

Status GradientProbe::Summarise(const dump::Session& session, std::optional<int> rank) {
  const dump::Config& config = session.config();
  const std::vector<std::string>& wanted = config.gradients.parameters;
  // The name that the older tools use: their comparison of gradients reads folders of a rank only.
  const std::string folder = fmt::format("rank{}", rank.value_or(0));
  dump::GradientSummary summary(
      config.gradients, JoinPath(config.dump_path, dump::ClaimFolder(config.dump_path, "", folder)),
      step_);
  if (Exists(summary.path()) && !std::exchange(said_replaces_, true))
    Log(LogLevel::kWarning, fmt::format("{} exists and is replaced; to keep it, use another "
                                        "dump_path",
                                        summary.path()));
  if (rank) SetLogRank(*rank);
  for (const auto& [name, parameter] : Parameters()) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), name) == wanted.end()) continue;
    const PyRef gradient = GradientOf(parameter.get());
    if (gradient) MSPROBE_RETURN_IF_ERROR(Add(&summary, name, gradient.get()));
  }
  return summary.Finish();
}

Status GradientProbe::Add(dump::GradientSummary* summary, const std::string& name,
                          PyObject* gradient) {
  const TensorAccess access(gradient);
  if (!access.readable() || !summary->Takes(access.view())) {
    if (!std::exchange(said_unreadable_, true)) {
      Log(LogLevel::kWarning,
          fmt::format("grad_probe leaves out the gradient of {}, and all others of its kind: {} of "
                      "{} is not a dense tensor of real numbers",
                      name, access.type(), access.dtype()));
    }
    return Status::Ok();
  }
  const ReleasedGil released;
  return summary->Add(name, access.view());
}

}  // namespace msprobe::capture
