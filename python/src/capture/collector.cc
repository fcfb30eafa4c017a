#include "capture/collector.h"

#include <algorithm>

#include "capture/collective_call.h"
#include "capture/interpose_function.h"
#include "capture/provenance.h"
#include "capture/torch_api.h"
#include "capture/weights.h"
#include "engine/base/log.h"
#include "engine/base/text.h"
#include "engine/dump/names.h"

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
  session_->Abandon();
}

Result<bool> Collector::StartSession(std::optional<int> rank) {
  if (search_ != nullptr) {
    MSPROBE_ASSIGN_OR_RETURN(const bool found, BeginSearch(rank));
    if (!found) return false;
  }
  if (session_->begins_step() && session_->filter().WantsStep(session_->step()))
    session_->SetProvenance(ProvenanceJson());
  return session_->Start(rank);
}

Result<bool> Collector::Start(std::optional<int> rank, const NamedModels& models) {
  if (session_->config().level == Level::kDebug) return false;  // Save starts by itself
  MSPROBE_ASSIGN_OR_RETURN(const bool collecting, StartSession(rank));
  options_.slicer = session_->slicer().empty() ? nullptr : &session_->slicer();
  sees_calls_ = false;
  tokens_ = 0;
  if (!collecting) return false;
  if (!token_range_) SeeCalls();
  if (modules_wanted_ && module_tree_.empty()) {
    for (const auto& [prefix, model] : models) module_tree_.AddModel(prefix, model);
  }
  NoteWeights(models);
  return true;
}

void Collector::SeeCalls() {
  sees_calls_ = true;
  coverage_.Start(/*modules_only=*/!apis_wanted_);
  if (session_->filter().data_mode.backward()) WatchBackward(true);
  if (modules_wanted_) ModuleCalls::Install(this);
  if (!apis_wanted_) return;
  ObservedFunction::ForEachStub(
      [](PyObject* code, void* self) { static_cast<Collector*>(self)->stacks_.HideCode(code); },
      this);
  Interposer::Install(this);
}

void Collector::SetTokenRange(std::optional<std::pair<int64_t, int64_t>> range) {
  token_range_ = range;
}

void Collector::BeginToken() {
  if (!token_range_ || !session_->collecting()) return;
  const int64_t token = tokens_++;
  if (token == token_range_->first) SeeCalls();
  if (token == token_range_->second + 1) StopCalls();
}

void Collector::NoteWeights(const NamedModels& models) {
  if (models.empty() || !records_values() || std::exchange(noted_weights_, true)) return;
  WeightsText text;
  for (const auto& [prefix, model] : models) text.Add(prefix, model);
  session_->WriteBeside("weights.json", text.Finish());
}

Status Collector::Stop() {
  only_module_ = nullptr;
  StopCalls();
  FlushLate();
  Interposer::Remove();
  // After a fault, too: asking the dispatcher costs time at each operation.
  DispatchCount::Remove();
  if (!session_->collecting()) return Status::Ok();
  FlushBackward();
  ForgetGradients();
  WriteArrivedGradients();
  FetchLate();
  WriteCoverage();
  ReportSearch();
  return session_->Stop();
}

void Collector::FetchLate() { session_->KnowLateStats(device_.Fetch()); }

void Collector::StopCalls() {
  sees_calls_ = false;
  if (late_.empty()) Interposer::Remove();  // else waiting is still to be seen
  ModuleCalls::Remove();
  WatchBackward(false);
  Thread().modules.clear();
  call_place.modules = 0;
}

void Collector::Step() {
  FlushSaves();
  (void)Stop();  // a failure is logged where it happens
  session_->Step();
  if (session_->configured() != configured_) Adopt();
  coverage_.NewStep();
}

void Collector::WriteCoverage() {
  Coverage coverage = coverage_.Stop([this](std::string_view name) {
    return std::any_of(apis_.begin(), apis_.end(), [&](const auto& api) {
      const std::string_view stem = api->stem;  // "Torch.relu."; empty: it waits for another call
      return stem.size() > name.size() + 1 && stem.ends_with('.') &&
             stem.substr(stem.find('.') + 1, stem.size() - stem.find('.') - 2) == name;
    });
  });
  if (session_->config().level == Level::kDebug)
    coverage.why_not_counted = "level debug records what save() is given";
  session_->WriteBeside(kCoverageFile, CoverageJson(coverage));
  if (std::exchange(said_coverage_, true)) return;
  for (const std::string& line : CoverageLines(coverage, 3)) Log(LogLevel::kInfo, line);
}

void Collector::BeginAtStep(int64_t step) {
  FlushSaves();
  (void)Stop();
  session_->BeginAtStep(step);
  if (session_->configured() != configured_) Adopt();
}

std::unique_ptr<Collector::OpenCall> Collector::Begin(const std::string& stem, int64_t number,
                                                      bool is_module) {
  ThreadState& thread = Thread();
  std::unique_ptr<OpenCall> call;
  if (thread.spare.empty()) {
    call = std::make_unique<OpenCall>();
  } else {
    call = std::move(thread.spare.back());
    thread.spare.pop_back();
  }
  Filter& filter = session_->filter();
  call->builder.Begin(ComposeEntryName(stem, number, "forward", is_module));
  call->backward = ComposeEntryName(stem, number, "backward", is_module);
  if (thread.modules.empty()) {
    call->parent.clear();
    call->parent_backward.clear();
  } else {
    call->parent = thread.modules.back()->builder.name();
    call->parent_backward = thread.modules.back()->backward;
  }
  call->step = session_->step();
  call->stack = call->site = -1;
  call->held.clear();
  call->ticket = 0;
  call->api = nullptr;
  call->group.clear();
  call->given = call->made = {};
  // The filter follows the order of execution: every call is shown to it.
  const bool listed = is_module ? filter.EnterModule(call->builder.name())
                                : filter.WantsEntry(call->builder.name());
  call->wanted = filter.data_mode.forward() && listed;
  call->wants_backward = filter.data_mode.backward();
  return call;
}

void Collector::Recycle(std::unique_ptr<OpenCall> call) {
  call->edges = InputEdges();
  Thread().spare.push_back(std::move(call));
}

bool Collector::Stores(const std::string& name) const {
  return session_->storing() && (session_->config().task == Task::kTensor || looks_for_overflow() ||
                                 session_->filter().WantsTensor(name));
}

EntryStyle Collector::StyleOf(const std::string& name, bool is_output) const {
  if (!looks_for_nan()) return {.store = Stores(name)};
  const bool locate = session_->filter().WantsTensor(name);
  return {.reading = is_output || locate ? Reading::kMeasured : Reading::kDescribed,
          .locate = locate};
}

bool Collector::WriteInputs(OpenCall* call, const CallArgs& args) {
  const bool record =
      call->wanted && session_->filter().data_mode.forward_input && records_values();
  if (!record) scratch_.Begin("");
  EntryStyle style =
      record ? StyleOf(call->builder.name(), /*is_output=*/false) : EntryStyle{Reading::kMet};
  if (waits_to_record() && call->wanted) {
    style.reading = Reading::kMeasured;  // what was given excuses what is made of it
    style.held = &call->held;
  }
  ValueWriter writer(record ? &call->builder : &scratch_, options_, style);
  if (call->api != nullptr && call->api->ignored != nullptr)
    writer.Ignore(&call->api->ignored->input);
  writer.List("input_args", "input", args.self, args.positional, args.count);
  if (args.names != nullptr) {
    writer.Names("input_kwargs", "kwargs", args.names, args.positional + args.count);
  } else {
    writer.Dict("input_kwargs", "kwargs", args.dict);
  }
  if (writer.tracing()) return false;
  call->given = writer.nonfinite();
  if (call->wants_backward) call->edges = InputEdges(writer.tensors());
  return true;
}

void Collector::NoteStack(OpenCall* call) {
  if (!call->wanted || !(session_->config().extra_info || waits_to_record())) return;
  bool is_new;
  call->site = stacks_.Intern(&is_new);
  if (waits_to_record()) return;  // not known yet whether it is recorded
  call->stack =
      session_->NoteStack(call->site, call->builder.name(), [&] { return stacks_.Format(); });
  if (modules_wanted_ && call->parent.empty()) NoteRegion(call, stacks_.Region(call->site));
}

void Collector::NoteRegion(OpenCall* call, const std::string& region) {
  if (region.empty()) return;
  call->parent = region;
  int64_t& step = region_steps_.try_emplace(region, -1).first->second;
  if (std::exchange(step, session_->step()) != session_->step())
    session_->Record({.entry = "", .name = region, .parent = "", .construct = true});
}

void* Collector::Enter(const Api& api, const CallArgs& args) {
  call_place.place = Place::kOutside;
  if (!sees_calls_ || only_module_ != nullptr || !session_->collecting()) return nullptr;
  if (!api.recorded) {
    (void)session_->NextCall(api.counter);
    ++coverage_.apis.ignored;
    call_place.place = Place::kIgnored;
    return nullptr;
  }
  const KeepError keep;
  const QuietTorch quiet;
  return Guarded([&] { return EnterCall(api, args); });
}

void* Collector::EnterCall(const Api& api, const CallArgs& args) {
  if (coalescing_ > 0) SettleCoalesced(nullptr);
  std::unique_ptr<OpenCall> call =
      Begin(api.stem, session_->NextCall(api.counter), /*is_module=*/false);
  call->api = &api;
  if (api.output_is_arguments) call->wants_backward = false;
  if (!call->wanted) ++coverage_.apis.ignored;
  call_place.place = call->wanted ? Place::kRecorded : Place::kIgnored;
  if (!call->wanted && !call->wants_backward) {
    Recycle(std::move(call));
    return nullptr;
  }
  if (!WriteInputs(call.get(), args)) {
    ++coverage_.apis.traced;
    call_place.place = Place::kOutside;
    session_->TakeBack(api.counter);
    Recycle(std::move(call));
    return nullptr;
  }
  NoteStack(call.get());
  return call.release();
}

void Collector::WriteOutput(OpenCall* call, PyObject* output, PyObject* module) {
  const bool record =
      call->wanted && session_->filter().data_mode.forward_output && records_values();
  if (!record) scratch_.Begin("");
  EntryStyle style =
      record ? StyleOf(call->builder.name(), /*is_output=*/true) : EntryStyle{Reading::kMet};
  if (waits_to_record()) style.held = &call->held;
  ValueWriter writer(record ? &call->builder : &scratch_, options_, style);
  if (call->api != nullptr && call->api->ignored != nullptr)
    writer.Ignore(&call->api->ignored->output);
  writer.Output("output", "output", output);
  const std::vector<PyObject*> outputs = writer.tensors();
  call->made = writer.nonfinite();
  if (record && module != nullptr) {
    const PyRef parameters = ModuleTree::ParametersOf(module);
    ValueWriter of_parameters(&call->builder, options_, style);
    of_parameters.Dict("parameters", "parameters",
                       parameters && PyDict_Check(parameters.get()) ? parameters.get() : nullptr,
                       /*leave_out_none=*/true);
    // They went in, here and in the modules around.
    call->given.Add(of_parameters.nonfinite());
    for (const auto& around : Thread().modules) around->given.Add(of_parameters.nonfinite());
  }
  if (call->wants_backward &&
      ArmBackward(call->edges, outputs, this, call->step, call->backward, call->parent_backward)) {
    ++coverage_.expected_gradients;
    if (looks_for_overflow()) seen_gradients_[call->backward].site = call->site;
  }
}

void Collector::Finish(OpenCall* call) {
  if (!call->wanted || !session_->collecting() || call->step != session_->step()) return;
  CallCounts& counts = call->ticket != 0 ? coverage_.modules : coverage_.apis;
  if (waits_to_record() && !SettleForward(call)) {
    ++counts.ignored;
    return;
  }
  ++counts.recorded;
  if (!call->group.empty()) call->builder.RawField("group", call->group);
  // As text, like the keys of stack.json: the earlier tool's reader stops at a number here.
  if (looks_for_nan()) call->builder.RawField("is_nan", call->made.any() ? "1" : "0");
  if (call->stack >= 0) call->builder.Field("stack", std::to_string(call->stack));
  session_->Record({records_values() ? call->builder.Finish() : "", call->builder.name(),
                    call->parent, modules_wanted_});
  if (device_.many_pending()) FetchLate();
  if (looks_for_overflow()) CountOverflow(call->builder.name(), call->found, call->site);
  if (search_ != nullptr) CountDifference(call->builder.name(), call->site);
}

void Collector::Leave(void* token, const CallArgs& args, PyObject* result) {
  std::unique_ptr<OpenCall> call(static_cast<OpenCall*>(token));
  Guarded([&] { LeaveCall(std::move(call), args, result); });
}

void Collector::LeaveCall(std::unique_ptr<OpenCall> call, const CallArgs& args, PyObject* result) {
  {
    const std::string_view exception = result == nullptr ? TypeName(PyErr_Occurred()) : "";
    const KeepError keep;
    const QuietTorch quiet;
    if (call->api->collective && Postpone(&call, args, result)) return;
    if (result == nullptr) {
      call->builder.Field("exception", exception);
    } else if (call->api->output_is_arguments) {
      WriteList(call.get(), Flatten(args));
    } else {
      WriteOutput(call.get(), result, nullptr);
    }
    Finish(call.get());
  }
  Recycle(std::move(call));
}

}  // namespace msprobe::capture
