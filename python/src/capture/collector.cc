#include "capture/collector.h"

#include "capture/calls/code_stub.h"
#include "capture/provenance.h"
#include "capture/values/weights.h"
#include "engine/base/log.h"

namespace msprobe::capture {

Collector& Collector::Get() {
  static Collector* instance =
      new Collector;  // never destroyed: hooks may outlive static destructors
  return *instance;
}

Collector::ThreadState& Collector::Thread() {
  // Entries still open when a thread ends hold Python references that cannot be given back then:
  // left behind.
  struct Holder {
    ThreadState* state = new ThreadState;
    ~Holder() {
      if (state->modules.empty()) delete state;
    }
  };
  thread_local Holder holder;
  return *holder.state;
}

void Collector::Abandon() {
  DispatchCount::Abandon();
  run_.session->Abandon();
}

Result<bool> Collector::StartSession(std::optional<int> rank) {
  if (search_ != nullptr) {
    MSPROBE_ASSIGN_OR_RETURN(const bool found, BeginSearch(rank));
    if (!found) return false;
  }
  if (run_.session->begins_step() && run_.session->filter().WantsStep(run_.session->step()))
    run_.session->SetProvenance(ProvenanceJson());
  return run_.session->Start(rank);
}

Result<bool> Collector::Start(std::optional<int> rank, const NamedModels& models) {
  if (run_.session->config().level == Level::kDebug) return false;  // Save starts by itself
  MSPROBE_ASSIGN_OR_RETURN(const bool collecting, StartSession(rank));
  run_.options.slicer = run_.session->slicer().empty() ? nullptr : &run_.session->slicer();
  sees_calls_ = false;
  tokens_ = 0;
  if (!collecting) return false;
  if (!token_range_) SeeCalls();
  if (run_.modules_wanted && module_tree_.empty()) {
    for (const auto& [prefix, model] : models) module_tree_.AddModel(prefix, model);
  }
  NoteWeights(models);
  return true;
}

void Collector::SeeCalls() {
  sees_calls_ = true;
  run_.coverage.Start(/*modules_only=*/!run_.apis_wanted);
  if (run_.session->filter().data_mode.backward()) WatchBackward(true);
  if (run_.modules_wanted) ModuleCalls::Install(this);
  if (!run_.apis_wanted) return;
  CodeStub::ForEach(
      [](PyObject* code, void* self) { static_cast<Collector*>(self)->run_.stacks.HideCode(code); },
      this);
  Interposer::Install(this);
}

void Collector::WhileRemoved(const std::function<void()>& change) {
  const bool installed = Interposer::installed(), sees_calls = sees_calls_;
  if (installed) Interposer::Remove();
  change();
  if (installed) SeeCalls();
  sees_calls_ = sees_calls;
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

void Collector::NoteWeights(const NamedModels& models) {
  if (models.empty() || !run_.records_values()) return;
  if (run_.config().pkl ? !run_.session->TakeNewPkl() : std::exchange(noted_weights_, true))
    return;
  WeightsText text;
  for (const auto& [prefix, model] : models) text.Add(prefix, model);
  run_.session->WriteBeside("weights.json", text.Finish());
}

Status Collector::Stop() {
  only_module_ = nullptr;
  StopCalls();
  late_.Flush();
  Interposer::Remove();
  // After a fault, too: asking the dispatcher costs time at each operation.
  DispatchCount::Remove();
  if (!run_.session->collecting()) return Status::Ok();
  FlushBackward();
  overflow_.Forget();
  parameter_gradients_.WriteAll();
  run_.FetchDeferred();
  WriteCoverage();
  ReportSearch();
  return run_.session->Stop();
}

void Collector::StopCalls() {
  sees_calls_ = false;
  if (late_.empty()) Interposer::Remove();  // else waiting is still to be seen
  ModuleCalls::Remove();
  WatchBackward(false);
  Thread().modules.clear();
  call_place.modules = 0;
}

void Collector::Step() {
  if (run_.session == nullptr) return;  // nothing was wanted until now
  saves_.Flush();
  (void)Stop();  // a failure is logged where it happens
  run_.session->Step();
  backward_stacks_.clear();
  if (run_.session->configured() != configured_) Adopt();
  run_.coverage.NewStep();
}

void Collector::WriteCoverage() {
  dump::Coverage coverage =
      run_.coverage.Stop([this](std::string_view name) { return apis_.Lists(name); });
  if (run_.session->config().level == Level::kDebug)
    coverage.why_not_counted = "level debug records what save() is given";
  run_.session->WriteBeside(dump::kCoverageFile, dump::CoverageJson(coverage));
  if (std::exchange(said_coverage_, true)) return;
  for (const std::string& line : dump::CoverageLines(coverage, 3)) Log(LogLevel::kInfo, line);
}

void Collector::BeginAtStep(int64_t step) {
  saves_.Flush();
  (void)Stop();
  run_.session->BeginAtStep(step);
  if (run_.session->configured() != configured_) Adopt();
}

}  // namespace msprobe::capture
