#include "capture/gradients/gradient_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "capture/calls/interpose.h"
#include "capture/python/framework.h"
#include "capture/python/named_tensors.h"
#include "capture/python/process_group.h"
#include "capture/python/torch_api.h"
#include "capture/values/framework_tensor.h"
#include "capture/values/hold_elements.h"
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

GradientProbe::GradientProbe() {
  reader_.SetMeasure(
      [](const TensorView&, const DeviceReader::Request&, DeferredNumbers*) {});  // elements only
}

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
  if (!failed_.ok()) {
    off_ = true;
    return session->Fail(failed_);
  }
  extent_.last_step = step_;
  extent_.rank = rank;
  if (!session->config().rank.empty()) extent_.ranks = RanksOfRun(rank);
  if (filter.WantsStep(step_) && filter.WantsRank(rank.value_or(-1))) {
    off_ = true;  // stays so if an error follows
    const KeepError keep;
    const QuietTorch quiet;
    const Interposer::Pause pause;
    Summarise(*session, rank, gradients());
    TakeArrived();
    if (!failed_.ok()) return session->Fail(failed_);
    off_ = false;
    extent_.collected = true;
  } else if (filter.IsPastLastStep(step_) && !std::exchange(said_end_, true)) {
    Log(LogLevel::kInfo, "all wanted steps are recorded; the run goes on without collection"_t);
  }
  ++step_;
  autocast_.reset();
}

void GradientProbe::SayUnmet(dump::Session* session) {
  if (abandoned_) return;
  drain_.Stop();
  if (reader_.is_used()) FetchAll();
  if (!failed_.ok() && !std::exchange(off_, true)) session->Fail(failed_);
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

void GradientProbe::Summarise(const dump::Session& session, std::optional<int> rank,
                              const std::vector<Named>& gradients) {
  const dump::Config& config = session.config();
  const std::vector<std::string>& wanted = config.gradients.parameters;
  // The name that the older tools use: their comparison of gradients reads folders of a rank only.
  const std::string folder = fmt::format("rank{}", rank.value_or(0));
  const auto files = std::make_shared<StepFiles>(
      config.gradients, JoinPath(config.dump_path, dump::ClaimFolder(config.dump_path, "", folder)),
      step_, autocast_);
  const std::string path = files->summary.path();
  if (Exists(path) && !std::exchange(said_replaces_, true))
    Log(LogLevel::kWarning,
        "{} exists and is replaced; to keep it, use another "
        "dump_path"_t(path));
  if (rank) SetLogRank(*rank);
  {
    const DeviceReader::Together together(&reader_);
    for (const auto& [name, gradient] : gradients) {
      if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), name) == wanted.end())
        continue;
      Add(files, name, gradient.get());
      extent_.recorded = true;
    }
  }
  if (!config.step.empty()) extent_.steps.insert(step_);
  late_.Add({}, [this, files] {
    if (failed_.ok()) Note(files->summary.Finish());
  });
}

void GradientProbe::Note(const Status& status) {
  if (failed_.ok()) failed_ = status;
}

void GradientProbe::TakeArrived() {
  (void)reader_.Arrived();
  if (reader_.is_used()) {
    drain_.Start([this] {
      try {
        TakeArrived();
      } catch (const std::exception& error) {
        Note(Internal(std::string(error.what())));
      }
    });
  }
  late_.Run();
}

void GradientProbe::FetchAll() {
  (void)reader_.FinishInStep();
  late_.Run(/*give_up=*/true);
}

void GradientProbe::Add(const Files& files, const std::string& name, PyObject* gradient) {
  if (Framework::Get().is_torch()) {
    TensorAccess access(gradient, Fetch::kNever);
    if (AddLater(files, name, access)) return;
    if (access.on_device()) access.FetchNow();
    return AddTensor(files, name, access);
  }
  if (Framework::Get().IsTensor(gradient)) return AddTensor(files, name, FrameworkTensor(gradient));
  const NumpyArray array(gradient);  // from a compiled graph
  AddTensor(files, name, FrameworkTensor(array));
}

std::shared_ptr<HeldElements> GradientProbe::Hold(const TensorAccess& access, LateTensors* needs) {
  std::shared_ptr<HeldElements> elements = HoldElements(access, &reader_, needs);
  if (elements != nullptr) return elements;
  FetchAll();
  return HoldElements(access, &reader_, needs);
}

bool GradientProbe::AddLater(const Files& files, const std::string& name,
                             const TensorAccess& access) {
  if (!access.on_device()) return false;
  const TensorView described{.dtype = access.element_type(),
                             .ndim = static_cast<int>(access.shape().size()),
                             .shape = access.shape().data()};
  if (!files->summary.Takes(described)) {
    LeaveOut(name, access.type(), access.dtype());
    return true;
  }
  LateTensors needs;
  const std::shared_ptr<HeldElements> elements = Hold(access, &needs);
  if (elements == nullptr) return false;
  const std::shared_ptr<LateTensor> late = needs.front();
  late_.Add(std::move(needs), [this, files, name, late, elements] {
    if (late->arrived) return AddRow(files, name, elements->view());
    Log(LogLevel::kWarning,
        "grad_probe leaves out the gradient of {}: it did not come from its "
        "device"_t(name));
  });
  return true;
}

void GradientProbe::LeaveOut(const std::string& name, std::string_view type,
                             std::string_view dtype) {
  if (std::exchange(said_unreadable_, true)) return;
  Log(LogLevel::kWarning,
      "grad_probe leaves out the gradient of {}, and all others of its kind: {} of "
      "{} is not a dense tensor of real numbers"_t(name, std::string(type), std::string(dtype)));
}

void GradientProbe::AddRow(const Files& files, const std::string& name, const TensorView& view) {
  if (!failed_.ok()) return;
  Status added = Status::Ok();
  {
    const ReleasedGil released;
    added = files->summary.Add(name, view);
  }
  Note(added);
}

template <typename Access>
void GradientProbe::AddTensor(const Files& files, const std::string& name, const Access& access) {
  if (!access.readable() || !files->summary.Takes(access.view()))
    return LeaveOut(name, access.type(), access.dtype());
  const TensorView& view = access.view();
  if (late_.Knows({})) return AddRow(files, name, view);
  // Its row comes after those that are still to come.
  const std::shared_ptr<HeldElements> elements = HeldElements::Reserve(view.dtype, view.dims());
  if (elements == nullptr) {
    FetchAll();
    return AddRow(files, name, view);
  }
  elements->Take(view);
  late_.Add({}, [this, files, name, elements] { AddRow(files, name, elements->view()); });
}

}  // namespace msprobe::capture
