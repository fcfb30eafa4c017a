#include "capture/gradients/gradient_probe.h"

#include <fmt/format.h>

#include <algorithm>

#include "capture/calls/interpose.h"
#include "capture/python/framework.h"
#include "capture/python/named_tensors.h"
#include "capture/python/process_group.h"
#include "capture/python/torch_api.h"
#include "capture/values/framework_tensor.h"
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
PyRef OptimizersGradientOf(PyObject* parameter) {
  for (const char* attribute : {"main_grad", "grad"}) {
    PyRef gradient = PyRef::Steal(PyObject_GetAttrString(parameter, attribute));
    if (gradient && gradient.get() != Py_None) return gradient;
    ClearError();
  }
  return PyRef();
}

Status CheckTask(const dump::Config& config) {
  if (config.task == Task::kGradProbe) return Status::Ok();
  return InvalidArgument(std::string("monitor"))
      .Expected(std::string("task \"grad_probe\""))
      .Found(fmt::format("\"{}\"", TaskName(config.task)))
      .Hint(std::string("PrecisionDebugger(task=\"grad_probe\")"));
}

void WarnOfUnknown(const dump::GradientRules& rules, const std::vector<std::string_view>& names) {
  for (const std::string& wanted : rules.parameters) {
    if (std::find(names.begin(), names.end(), wanted) != names.end()) continue;
    const std::string_view near = NearestSpelling(wanted, names);
    Log(LogLevel::kWarning,
        Message::Joined({"param_list: the model has no parameter {}"_t(Excerpt(wanted)),
                         near.empty() ? Message() : "did you mean \"{}\"?"_t(near)},
                        "; "));
  }
}

}  // namespace

GradientProbe& GradientProbe::Get() {
  static GradientProbe* instance =
      new GradientProbe;  // never destroyed: it holds Python references
  return *instance;
}

Status GradientProbe::Watch(const dump::Session& session,
                            std::vector<std::pair<std::string, PyRef>> models) {
  MSPROBE_RETURN_IF_ERROR(CheckTask(session.config()));
  models_ = std::move(models);
  const std::vector<Named> parameters = Parameters();
  std::vector<std::string_view> names;
  names.reserve(parameters.size());
  for (const auto& [name, parameter] : parameters) names.push_back(name);
  WarnOfUnknown(session.config().gradients, names);
  return Status::Ok();
}

Status GradientProbe::WatchNames(const dump::Session& session, std::vector<std::string> names) {
  MSPROBE_RETURN_IF_ERROR(CheckTask(session.config()));
  names_ = std::move(names);
  WarnOfUnknown(session.config().gradients, {names_.begin(), names_.end()});
  return Status::Ok();
}

std::vector<GradientProbe::Named> GradientProbe::Parameters() const {
  std::vector<Named> parameters;
  for (const auto& [prefix, model] : models_) {
    for (auto& [name, tensor] : NamedTensors(model.get(), "named_parameters"))
      parameters.emplace_back(prefix + name, std::move(tensor));
  }
  return parameters;
}

std::vector<GradientProbe::Named> GradientProbe::Gradients() const {
  std::vector<Named> gradients;
  for (const auto& [name, parameter] : Parameters()) {
    PyRef gradient = OptimizersGradientOf(parameter.get());
    if (gradient) gradients.emplace_back(name, std::move(gradient));
  }
  return gradients;
}

std::vector<GradientProbe::Named> GradientProbe::Zip(PyObject* gradients) {
  std::vector<Named> named;
  const bool is_sequence = PyTuple_Check(gradients) || PyList_Check(gradients);
  const size_t count =
      is_sequence ? static_cast<size_t>(PySequence_Fast_GET_SIZE(gradients)) : size_t{0};
  if (count != names_.size() && !std::exchange(said_count_, true)) {
    const std::string_view type = TypeName(reinterpret_cast<PyObject*>(Py_TYPE(gradients)));
    Log(LogLevel::kWarning,
        "grad_probe: expected {} gradients, one for each parameter of the optimizer, "
        "found {}; steps like this one have no rows"_t(
            names_.size(), is_sequence ? std::to_string(count) : std::string(type)));
  }
  if (count != names_.size()) return named;
  for (size_t i = 0; i < count; ++i) {
    PyObject* const each = PySequence_Fast_GET_ITEM(gradients, static_cast<Py_ssize_t>(i));
    if (Framework::Get().IsTensor(each) || NumpyArray::IsArray(each))
      named.emplace_back(names_[i], PyRef::Borrow(each));
  }
  return named;
}

template <typename Collect>
void GradientProbe::Step(dump::Session* session, std::optional<int> rank, Collect&& gradients) {
  const dump::Filter& filter = session->filter();
  extent_.last_step = step_;
  extent_.rank = rank;
  if (!session->config().rank.empty()) extent_.ranks = RanksOfRun(rank);
  if (filter.WantsStep(step_) && filter.WantsRank(rank.value_or(-1))) {
    off_ = true;  // stays so if an error follows
    const KeepError keep;
    const QuietTorch quiet;
    const Interposer::Pause pause;
    const Status status = Summarise(*session, rank, gradients());
    if (!status.ok()) return session->Fail(status);
    off_ = false;
    extent_.collected = true;
  } else if (filter.IsPastLastStep(step_) && !std::exchange(said_end_, true)) {
    Log(LogLevel::kInfo, "all wanted steps are recorded; the run goes on without collection"_t);
  }
  ++step_;
  autocast_.reset();
}

void GradientProbe::SayUnmet(dump::Session* session) {
  if (off_ || session->disabled() || session->config().task != Task::kGradProbe) return;
  if (extent_.last_step < 0) {
    Log(LogLevel::kWarning,
        "nothing was recorded: task grad_probe reads gradients at each step of the optimizer that "
        "monitor() was given, and there was none"_t);
  }
  for (const Message& line : dump::UnmetRequests(session->config(), session->filter(), extent_))
    Log(LogLevel::kWarning, line);
}

void GradientProbe::StepBegins(dump::Session* session, PyObject* optimizer,
                               std::optional<int> rank) {
  if (off_ || session->disabled() || (running_ != nullptr && running_ != optimizer)) return;
  running_ = optimizer;
  Step(session, rank, [this] { return Gradients(); });
}

bool GradientProbe::TakeStep(dump::Session* session, PyObject* gradients, std::optional<int> rank) {
  if (!off_ && !session->disabled()) Step(session, rank, [&] { return Zip(gradients); });
  return !off_ && !session->disabled() && !said_end_;
}

void GradientProbe::StepEnds(PyObject* optimizer) {
  if (running_ == optimizer) running_ = nullptr;
}

Status GradientProbe::Summarise(const dump::Session& session, std::optional<int> rank,
                                const std::vector<Named>& gradients) {
  const dump::Config& config = session.config();
  const std::vector<std::string>& wanted = config.gradients.parameters;
  // The name that the older tools use: their comparison of gradients reads folders of a rank only.
  const std::string folder = fmt::format("rank{}", rank.value_or(0));
  dump::GradientSummary summary(
      config.gradients, JoinPath(config.dump_path, dump::ClaimFolder(config.dump_path, "", folder)),
      step_, autocast_);
  if (Exists(summary.path()) && !std::exchange(said_replaces_, true))
    Log(LogLevel::kWarning,
        "{} exists and is replaced; to keep it, use another "
        "dump_path"_t(summary.path()));
  if (rank) SetLogRank(*rank);
  for (const auto& [name, gradient] : gradients) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), name) == wanted.end()) continue;
    MSPROBE_RETURN_IF_ERROR(Add(&summary, name, gradient.get()));
    extent_.recorded = true;
  }
  if (!config.step.empty()) extent_.steps.insert(step_);
  return summary.Finish();
}

Status GradientProbe::Add(dump::GradientSummary* summary, const std::string& name,
                          PyObject* gradient) {
  if (Framework::Get().is_torch()) return AddTensor(summary, name, TensorAccess(gradient));
  if (Framework::Get().IsTensor(gradient))
    return AddTensor(summary, name, FrameworkTensor(gradient));
  const NumpyArray array(gradient);  // from a compiled graph
  return AddTensor(summary, name, FrameworkTensor(array));
}

template <typename Access>
Status GradientProbe::AddTensor(dump::GradientSummary* summary, const std::string& name,
                                const Access& access) {
  if (!access.readable() || !summary->Takes(access.view())) {
    if (!std::exchange(said_unreadable_, true)) {
      Log(LogLevel::kWarning,
          "grad_probe leaves out the gradient of {}, and all others of its kind: {} of "
          "{} is not a dense tensor of real numbers"_t(name, access.type(), access.dtype()));
    }
    return Status::Ok();
  }
  const ReleasedGil released;
  return summary->Add(name, access.view());
}

}  // namespace msprobe::capture
