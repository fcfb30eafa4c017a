#include "capture/collector.h"

#include <fmt/format.h>

#include <algorithm>

#include "capture/calls/code_stub.h"
#include "capture/calls/dispatch_count.h"
#include "capture/calls/interpose.h"
#include "capture/calls/module_calls.h"
#include "capture/calls/optimizer_calls.h"
#include "capture/parallel_layout.h"
#include "capture/provenance.h"
#include "capture/python/framework.h"
#include "capture/python/named_tensors.h"
#include "capture/python/process_group.h"
#include "capture/recorders/graph_taps.h"
#include "capture/values/weights.h"
#include "engine/base/log.h"
#include "engine/base/text.h"

namespace msprobe::capture {
namespace {

// After the first dump of a run: where it is, what it has, what to type next.
void SayRecorded(const std::string& folder, const Message& what, const dump::Config& config) {
  Log(LogLevel::kInfo, "recorded in {}"_t(folder));
  Log(LogLevel::kInfo, what);
  const bool finds_overflow = config.task == Task::kOverflowCheck;
  const std::string golden = config.baseline.empty() ? "GOLDEN" : config.baseline;
  Log(LogLevel::kInfo, finds_overflow ? "next: msprobe overflow_check -i {}"_t(config.dump_path)
                                      : "next: msprobe compare {} {}"_t(config.dump_path, golden));
}

}  // namespace

Collector& Collector::Get() {
  static Collector* instance =
      new Collector;  // never destroyed: hooks may outlive static destructors
  return *instance;
}

void Collector::Abandon() {
  DispatchCount::Abandon();
  GraphTaps::Get().Want(std::nullopt);
  run_.session->Abandon();
  run_.drain.Abandon();
}

void Collector::Configure(dump::Config config, std::unique_ptr<dump::ConfigWatch> watch) {
  for (const Message& line : config.warnings) Log(LogLevel::kWarning, line);
  run_.session =
      std::make_unique<dump::Session>(std::move(config), std::string(Framework::Get().name));
  reload_.Watch(std::move(watch), run_.session->config().dump_enable.has_value());
  if (!run_.session->enabled())
    Log(LogLevel::kInfo, "collection is off until the configuration says \"dump_enable\": true"_t);
  run_.options.store = [this](const std::string& file, const TensorView& view) {
    return run_.session->Store(file, view);
  };
  run_.device.SetStore(run_.options.store);
  run_.device.SetMeasure(
      [this](const TensorView& view, const DeviceReader::Request& asked, DeferredNumbers* numbers) {
        MeasureCopy(view, asked, run_.options.contents, numbers);
      });
  run_.device.WhenFirstAsked([this] {
    if (run_.session->begins_step()) SetProvenance();
    run_.session->WriteTensorsLater();
  });
  if (!run_.device.type().empty()) run_.session->WriteTensorsLater();
  ApplyConfig();
}

void Collector::ReconfigureNow(dump::Config config, bool goes_on) {
  if (run_.session == nullptr || !run_.session->config().pkl) {
    Configure(std::move(config));
    return;
  }
  (void)Stop();  // a failure is logged where it happens
  ForgetOptimizers();
  gradients_.Forget();
  run_.session->ReconfigureNow(std::move(config), goes_on);
  ApplyConfig(goes_on);
}

void Collector::ReleasePkl() {
  if (run_.session == nullptr || !run_.session->config().pkl) return;
  (void)Stop();  // a failure is logged where it happens
  run_.session->ReleasePkl();
}

void Collector::ApplyConfig(bool goes_on) {
  const dump::Config& config = run_.session->config();
  configured_ = run_.session->configured();
  const bool records_calls = !run_.session->disabled() && config.task != Task::kGradProbe;
  run_.modules_wanted = records_calls && RecordsModules(config);
  run_.apis_wanted = records_calls && (config.level == Level::kL1 || config.level == Level::kMix);
  run_.optimizers_wanted = records_calls && RecordsOptimizers(config);
  run_.options.summary = config.summary;
  if (!goes_on) findings_.Forget();
  reference_.Configure();
  baseline_.Configure();
  free_benchmark_.Configure();
  run_.options.numbers = config.task != Task::kNanCheck;
  run_.options.for_pkl = config.pkl.has_value();
  run_.options.sketch =
      config.sketch && (config.task == Task::kStatistics || config.task == Task::kTensor);
  run_.notes_precision =
      !config.pkl && (config.task == Task::kStatistics || config.task == Task::kTensor);
  run_.options.unwritten = &run_.unwritten;
  run_.options.in_flight = &run_.in_flight;
  run_.known.Forget();
  run_.options.known = config.reuse ? &run_.known : nullptr;
  run_.options.contents = config.reuse ? &run_.contents : nullptr;
  // Other tasks need a tensor's numbers before the call goes on; and a program that an overflow is
  // to end ends in the call that made it.
  const bool may_come_later =
      config.task == Task::kStatistics || config.task == Task::kTensor ||
      config.task == Task::kNanCheck ||
      (config.task == Task::kOverflowCheck && !(config.pkl && config.pkl->raises));
  run_.options.device = may_come_later && config.bench_path.empty() ? &run_.device : nullptr;
  apis_.ApplyRules();
}

bool Collector::Refresh(bool has_model, std::optional<int> rank) {
  const ConfigReload::Answer answer = reload_.Poll(has_model, rank);
  if (answer == ConfigReload::Answer::kTaken) ApplyConfig();
  return answer != ConfigReload::Answer::kUnchanged;
}

Status Collector::Override(const dump::ConfigOverrides& more, bool has_model,
                           std::optional<int> rank) {
  MSPROBE_RETURN_IF_ERROR(reload_.Override(more, has_model, rank));
  if (run_.session->configured() != configured_) ApplyConfig();
  return Status::Ok();
}

void Collector::Save(PyObject* variable, PyObject* name, bool with_gradients,
                     std::optional<int> rank) {
  if (run_.session->config().level == Level::kDebug) BeginStage();
  saves_.Save(variable, name, with_gradients, rank);
}

Result<bool> Collector::StartSession(std::optional<int> rank) {
  if (reference_.on()) {
    MSPROBE_ASSIGN_OR_RETURN(const bool found, reference_.Begin(rank));
    if (!found) return false;
  }
  if (run_.session->begins_step() && run_.session->filter().WantsStep(run_.session->step()))
    SetProvenance();
  if (!run_.config().rank.empty()) run_.session->SetRanks(RanksOfRun(rank));
  Result<bool> started = run_.session->Start(rank);
  if (baseline_.on() && started.ok() && *started) baseline_.Begin(rank);
  return started;
}

void Collector::SetProvenance() {
  // A model may lie on another device than the one that the process has used before.
  run_.precision = PrecisionPolicy::Now();
  run_.session->SetProvenance(
      ProvenanceJson({.gradients_before = tells_gradients_before_,
                      .device_type = model_device_.empty() ? run_.device.type() : model_device_,
                      .precision = run_.notes_precision ? run_.precision.Text() : "",
                      .parallel = parallel_}));
}

void Collector::FindDevice(const NamedModels& models) {
  model_device_.clear();
  if (!Framework::Get().is_torch()) return;
  if (run_.session->begins_step()) parallel_ = ParallelJson(models);
  for (const auto& [prefix, model] : models) {
    for (const auto& [name, tensor] : NamedTensors(model, "named_parameters", /*most=*/1)) {
      model_device_ = DeviceTypeOf(tensor.get());
      return;
    }
  }
}

void Collector::BeginStage() {
  if (run_.session->begins_stage()) EndDump([this] { run_.session->BeginStage(); });
}

Result<bool> Collector::Start(std::optional<int> rank, const NamedModels& models, bool compiled,
                              const std::vector<PyTypeObject*>& classes) {
  if (run_.session->config().level == Level::kDebug) return false;  // Save starts by itself
  BeginStage();
  tells_gradients_before_ = gradients_before_.Begin(!models.empty());
  FindDevice(models);
  MSPROBE_ASSIGN_OR_RETURN(const bool collecting, StartSession(rank));
  run_.options.slicer = run_.session->slicer().empty() ? nullptr : &run_.session->slicer();
  run_.sees_calls = false;
  tokens_ = 0;
  if (!collecting) return false;
  rank_ = rank;
  parameter_names_.SetModels(models);
  optimizers_.SetStopped(false);
  // Where modules have no entries, as under level L1, only their names are needed.
  // The same holds for the modules that have MindSpore's Primitives.
  const bool has_callables = Framework::Get().callables != nullptr && run_.apis_wanted;
  const bool follows = !run_.modules_wanted && !run_.config().pkl && !free_benchmark_.on() &&
                       (run_.config().extra_info || has_callables);
  ModuleTree* tree = compiled              ? nullptr
                     : run_.modules_wanted ? &module_tree_
                     : follows             ? &followed_
                                           : nullptr;
  if (tree != nullptr && has_callables) {
    tree->TellOfCallables([this](PyObject* object, std::string_view attribute) {
      ModuleCalls::WatchApi(object, apis_.OfObject(object, attribute));
    });
  }
  if (tree != nullptr && tree->empty()) {
    for (const auto& [prefix, model] : models) tree->AddModel(prefix, model);
  }
  if (tree == &module_tree_ && !models.empty()) WarnWithoutModules();
  modules_.AwaitModel(tree != nullptr && tree->empty() && !classes.empty());
  if (modules_.awaits_model()) {
    for (PyTypeObject* type : classes) ModuleCalls::Watch(type);
  }
  if (free_benchmark_.on()) free_benchmark_.Begin(rank);
  if (!token_range_) SeeCalls();
  if (run_.modules_wanted) GraphTaps::Get().Want(AskedBy(run_.options));
  WriteWeights(models);
  return true;
}

void Collector::WarnWithoutModules() {
  if (run_.apis_wanted || !module_tree_.in_order().empty() || std::exchange(said_no_modules_, true))
    return;
  Log(LogLevel::kWarning,
      "nothing will be recorded: level L0 records the modules inside the model, and this model "
      "has none; pass a module that contains it, or use level \"mix\""_t);
}

void Collector::TakeModel(PyObject* model) {
  if (!std::exchange(said_model_, true)) {
    Log(LogLevel::kInfo,
        "start() was given no model: {} is the model, the first called module with "
        "parameters and modules inside; start(model) names another one"_t(
            std::string(Py_TYPE(model)->tp_name)));
  }
  const NamedModels models{{"", model}};
  (run_.modules_wanted ? module_tree_ : followed_).AddModel("", model);
  parameter_names_.SetModels(models);
  (void)gradients_before_.Begin(/*has_models=*/true);
  FindDevice(models);
  if (run_.session->begins_step()) SetProvenance();
  WriteWeights(models);
}

void Collector::NoteCompiledCode() {
  if (!run_.sees_calls || !run_.session->collecting()) return;
  const KeepError keep;
  Guarded([&] {
    std::string module = modules_.Running();
    std::vector<dump::Coverage::Compiled>& known = run_.coverage.compiled;
    if (std::any_of(known.begin(), known.end(), [&](const auto& k) { return k.module == module; }))
      return;
    bool is_new;
    std::string line = run_.WhereIs(run_.stacks.Intern(&is_new));
    known.push_back({std::move(module), std::move(line)});
  });
}

void Collector::SeeCalls() {
  run_.sees_calls = true;
  DispatchCount::TellOfCompiledCode(
      [](void* self) { static_cast<Collector*>(self)->NoteCompiledCode(); }, this);
  if (run_.optimizers_wanted) OptimizerCalls::Install(&optimizers_);
  // What a second run does is no operation of the program.
  if (!free_benchmark_.on()) run_.coverage.Start(/*modules_only=*/!run_.apis_wanted);
  if (free_benchmark_.on() ? free_benchmark_.of_gradients()
                           : run_.session->filter().data_mode.backward())
    WatchBackward(true);
  if (run_.modules_wanted || !followed_.empty() || modules_.awaits_model())
    ModuleCalls::Install(&modules_);
  // At level L0, too, nothing may be read that a collective still writes.
  if (!run_.apis_wanted && !run_.modules_wanted) return;
  CodeStub::ForEach(
      [](PyObject* code, void* self) { static_cast<Collector*>(self)->run_.stacks.HideCode(code); },
      this);
  Interposer::Install(free_benchmark_.on() ? static_cast<CallObserver*>(&free_benchmark_)
                                           : &api_calls_);
}

void Collector::WhileRemoved(const std::function<void()>& change) {
  const bool installed = Interposer::installed(), sees_calls = run_.sees_calls;
  if (installed) Interposer::Remove();
  change();
  if (installed) SeeCalls();
  run_.sees_calls = sees_calls;
}

void Collector::SetTokenRange(std::optional<std::pair<int64_t, int64_t>> range) {
  token_range_ = range;
}

void Collector::BeginToken() {
  if (!token_range_ || !run_.session->collecting()) return;
  const int64_t token = tokens_++;
  if (token == token_range_->first) SeeCalls();
  if (token == token_range_->second + 1) StopCalls();
}

void Collector::WriteWeights(const NamedModels& models) {
  const dump::Config& config = run_.config();
  if (models.empty() || !run_.records_values() || config.weights == dump::WeightSteps::kNone)
    return;
  const bool each = config.weights == dump::WeightSteps::kEach &&
                    (config.task == Task::kStatistics || config.task == Task::kTensor);
  // Those that were read for a step without entries are in no file.
  const bool is_first = !std::exchange(wrote_weights_, true) || !run_.session->recorded();
  const bool is_new = std::exchange(weights_dump_, run_.session->dump()) != run_.session->dump();
  if (config.pkl ? !run_.session->TakeNewPkl() : !is_first && !(each && is_new)) return;
  ValueOptions options;
  options.device = run_.options.device;
  options.bits = is_first || config.pkl;  // once in a run the fingerprints of all
  options.sketch = run_.options.sketch;
  options.known = run_.options.known;  // a forward pass reads most of them again
  options.contents = run_.options.contents;
  for (const auto& [prefix, model] : models) run_.weights.Read(prefix, model, options);
  if (!run_.weights.waits()) run_.session->WriteBeside("weights.json", run_.weights.Take());
}

Status Collector::Stop() {
  modules_.RecordAll();
  StopCalls();
  gradients_before_.End();
  api_calls_.FlushCollectives();
  run_.unwritten.Clear();
  run_.in_flight.Forget();
  run_.known.Forget();  // what runs now is not observed
  Interposer::Remove();
  // After a fault, too: asking the dispatcher costs time at each operation.
  DispatchCount::Remove();
  GraphTaps::Get().Want(std::nullopt);
  if (!run_.session->collecting()) {
    run_.late.Forget();
    return Status::Ok();
  }
  if (run_.modules_wanted && modules_.awaits_model() && !std::exchange(said_model_, true)) {
    Log(LogLevel::kWarning,
        "no modules are recorded: start() was given no model, and no module with parameters and "
        "modules inside was called; give start(model) the model"_t);
  }
  modules_.AwaitModel(false);
  FlushBackward();
  overflow_.Forget();
  free_benchmark_.Stop();
  parameter_gradients_.WriteAll();
  optimizers_.SetStopped(true);
  return Close();
}

Status Collector::Close() {
  run_.FetchDeferred();
  if (!run_.weights.empty()) run_.session->WriteBeside("weights.json", run_.weights.Take());
  WriteCoverage();
  WriteSignatures();
  reference_.Report();
  Status stopped = run_.session->Stop();
  baseline_.EndStep(/*is_over=*/false);
  return stopped;
}

void Collector::StopCalls() {
  run_.sees_calls = false;
  // A program that waits for collectives is still observed while it waits.
  if (!api_calls_.has_open_collectives()) {
    run_.unwritten.Clear();
    Interposer::Remove();
  }
  ModuleCalls::Remove();
  modules_.StopFollowing();
  WatchBackward(false);
  CallRecorder::OpenModules().clear();
  call_place.modules = 0;
}

void Collector::EndDump(const std::function<void()>& begin_next) {
  saves_.Flush();
  (void)Stop();  // a failure is logged where it happens
  ForgetOptimizers();
  baseline_.EndStep(/*is_over=*/true);
  begin_next();
  gradients_.NewStep();
  graphs_.NewStep();
  free_benchmark_.EndStep();
  if (run_.session->configured() != configured_) ApplyConfig();
  run_.coverage.NewStep();
  run_.known.NewStep();
  run_.device.NewStep();
}

void Collector::Step() {
  if (run_.session == nullptr) return;  // nothing was wanted until now
  EndDump([this] { run_.session->Step(); });
}

void Collector::RepeatStep() {
  EndDump([this] { run_.session->RepeatStep(); });
}

void Collector::SetOver(bool over) {
  if (over) (void)Stop();  // a failure is logged where it happens
  run_.session->SetOver(over);
}

void Collector::SayEnd() {
  baseline_.EndStep(/*is_over=*/true);
  free_benchmark_.Report();
  run_.session->SayUnmet();
}

void Collector::ForgetOptimizers() {
  optimizers_.SetStopped(false);
  OptimizerCalls::Remove();
}

void Collector::WriteCoverage() {
  if (free_benchmark_.on()) return;
  dump::Coverage coverage =
      run_.coverage.Stop([this](std::string_view name) { return apis_.Lists(name); });
  coverage.reads_saved = run_.known.saved().reads;
  coverage.bytes_saved = run_.known.saved().bytes;
  coverage.waits_for_memory = run_.device.waits().memory;
  coverage.waits_for_copies = run_.device.waits().copies;
  if (run_.session->config().level == Level::kDebug)
    coverage.why_not_counted = "level debug records what save() is given"_t;
  // A dump without entries says what was seen and left out; a step in which nothing ran has none.
  const auto calls = [](const dump::CallCounts& c) {
    return c.recorded + c.ignored + c.traced + c.wrappers;
  };
  const int64_t seen = calls(coverage.apis) + calls(coverage.modules) + coverage.recorded +
                       coverage.nested + coverage.gradient + coverage.ignored +
                       coverage.compiled_regions + coverage.not_observed_count();
  if (seen > 0 && run_.session->collecting()) (void)run_.session->OpenFiles();  // logs what fails
  run_.session->WriteBeside(dump::kCoverageFile, dump::CoverageJson(coverage));
  if (!run_.session->recorded() || std::exchange(said_coverage_, true)) return;
  for (const Message& line : dump::CoverageLines(coverage, 3)) Log(LogLevel::kDebug, line);
  SayRecorded(run_.session->folder(), dump::CoverageSentence(coverage), run_.config());
}

void Collector::WriteSignatures() {
  if (!run_.apis_wanted || !run_.records_values() || !run_.config().extra_info) return;
  std::string text = "{";
  const auto list = [&](const auto& items, const auto& append) {
    text += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) text += ',';
      append(items[i]);
    }
    text += ']';
  };
  const auto names = [&](const ApiTable::Names& parameters) {
    list(parameters, [&](const std::string& name) { AppendJsonString(&text, name); });
  };
  for (const auto& [api, overloads] : apis_.Signatures()) {
    text += text.size() > 1 ? ",\n" : "\n";
    AppendJsonString(&text, api);
    text += ':';
    overloads->size() == 1 ? names(overloads->front()) : list(*overloads, names);
  }
  if (text.size() == 1) return;
  run_.session->WriteBeside("signatures.json", text + "\n}\n");
}

void Collector::OnGradient(PyObject* module, const std::string& parameter, PyObject* gradient) {
  if (token_range_ && tokens_ <= token_range_->first) return;  // the range is still to come
  Guarded([&] {
    gradients_before_.OnArrival(gradient);
    parameter_gradients_.OnGradient(module, parameter, gradient);
  });
}

void Collector::OnCompiledGradient(const std::string& cell, const std::string& parameter,
                                   FrameworkTensor* gradient) {
  if (token_range_ && tokens_ <= token_range_->first) return;
  parameter_gradients_.OnGradient(cell, parameter, gradient);
}

void Collector::ForgetModules() {
  parameter_gradients_.Forget();
  modules_.Forget();
  module_tree_.Forget();
  modules_.StopFollowing();
  followed_.Forget();
}

void Collector::BeginAtStep(int64_t step) {
  EndDump([&] { run_.session->BeginAtStep(step); });
}

}  // namespace msprobe::capture
