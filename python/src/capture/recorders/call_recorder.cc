#include "capture/recorders/call_recorder.h"

#include <optional>
#include <utility>

#include "capture/values/generator_state.h"
#include "engine/model/names.h"

namespace msprobe::capture {

struct CallRecorder::ThreadState {
  std::vector<std::unique_ptr<OpenCall>> spare;
  std::vector<std::unique_ptr<OpenCall>> modules;  // innermost last; emptied by stop
};

CallRecorder::ThreadState& CallRecorder::Thread() {
  // Calls that are open when a thread ends hold Python references, which cannot be released then:
  // they are left behind.
  struct Holder {
    ThreadState* state = new ThreadState;
    ~Holder() {
      if (state->modules.empty()) delete state;
    }
  };
  thread_local Holder holder;
  return *holder.state;
}

std::vector<std::unique_ptr<OpenCall>>& CallRecorder::OpenModules() { return Thread().modules; }

std::unique_ptr<OpenCall> CallRecorder::Begin(const std::string& stem, int64_t number,
                                              bool is_module) {
  ThreadState& thread = Thread();
  std::unique_ptr<OpenCall> call;
  if (thread.spare.empty()) {
    call = std::make_unique<OpenCall>();
  } else {
    call = std::move(thread.spare.back());
    thread.spare.pop_back();
  }
  dump::Filter& filter = recording_->session->filter();
  std::string name;
  recording_->session->calls().Name(stem, number, is_module, &name, &call->backward);
  call->entry.Begin(name);
  if (thread.modules.empty()) {
    call->parent.clear();
    call->parent_backward.clear();
  } else {
    call->parent = thread.modules.back()->entry.name();
    call->parent_backward = thread.modules.back()->backward;
  }
  call->dump = recording_->session->dump();
  call->site = -1;
  call->held.clear();
  call->ticket = 0;
  call->api = nullptr;
  call->given = call->made = {};
  // The filter follows the order of execution: every call is shown to it.
  const bool listed =
      is_module ? filter.EnterModule(call->entry.name()) : filter.WantsEntry(call->entry.name());
  call->wanted = filter.data_mode.forward() && listed;
  call->wants_backward = filter.data_mode.backward();
  if (call->wanted) recording_->NotePrecision(&call->entry);
  return call;
}

void CallRecorder::Recycle(std::unique_ptr<OpenCall> call) {
  call->edges = InputEdges();
  call->kept.clear();
  Thread().spare.push_back(std::move(call));
}

void CallRecorder::KeepTensors(OpenCall* call, EntryStyle* style) {
  // Weights and state of an optimizer are not stored: Recording::Stores.
  if (baseline_->on() && call->wanted && !call->entry.name().starts_with("Optimizer."))
    style->kept = &call->kept;
}

bool CallRecorder::WriteInputs(OpenCall* call, const CallArgs& args) {
  const bool record = call->wanted && recording_->session->filter().data_mode.forward_input &&
                      recording_->records_values();
  std::optional<LentEntry> scratch;
  if (!record) scratch.emplace(&recording_->scratch)->Begin("");
  EntryStyle style = record ? recording_->StyleOf(call->entry.name(), /*is_output=*/false)
                            : EntryStyle{Reading::kPresence};
  if (waits_to_record() && call->wanted) {
    style.reading = Reading::kMeasured;  // non-finite inputs explain non-finite outputs
    style.held = &call->held;
  }
  if (record) KeepTensors(call, &style);
  ValueWriter writer(record ? &call->entry : scratch->get(), recording_->options, style);
  if (call->api != nullptr && call->api->ignored != nullptr)
    writer.Ignore(&call->api->ignored->input);
  const DeviceReader::Together together(recording_->options.device);
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

void CallRecorder::NoteStack(OpenCall* call) {
  if (!call->wanted || !(recording_->session->config().extra_info || waits_to_record()) ||
      call->dump != recording_->session->dump())
    return;
  bool is_new;
  call->site = recording_->stacks.Intern(&is_new);
  if (waits_to_record()) return;  // not known yet whether it is recorded
  call->entry.stack = recording_->session->NoteStack(call->site, call->entry.name(),
                                                     [&] { return recording_->stacks.Format(); });
  if (recording_->modules_wanted && call->parent.empty())
    NoteRegion(call, recording_->stacks.Region(call->site));
}

void CallRecorder::NoteGenerator(OpenCall* call, const CallArgs& args) {
  const dump::Config& config = recording_->config();
  if (!call->wanted || config.pkl ||
      (config.task != Task::kStatistics && config.task != Task::kTensor))
    return;
  AppendGeneratorState(GeneratorOf(args), &call->entry.random_state);
}

void CallRecorder::NoteRegion(OpenCall* call, const std::string& region) {
  if (region.empty()) return;
  call->parent = region;
  int64_t& dump = region_dumps_.try_emplace(region, -1).first->second;
  if (std::exchange(dump, recording_->session->dump()) != recording_->session->dump())
    recording_->session->Record({.name = region, .parent = "", .construct = true});
}

void CallRecorder::WriteOutput(OpenCall* call, PyObject* output, PyObject* module) {
  const bool record = call->wanted && recording_->session->filter().data_mode.forward_output &&
                      recording_->records_values();
  std::optional<LentEntry> scratch;
  if (!record) scratch.emplace(&recording_->scratch)->Begin("");
  EntryStyle style = record ? recording_->StyleOf(call->entry.name(), /*is_output=*/true)
                            : EntryStyle{Reading::kPresence};
  if (waits_to_record()) style.held = &call->held;
  if (record) KeepTensors(call, &style);
  ValueWriter writer(record ? &call->entry : scratch->get(), recording_->options, style);
  if (call->api != nullptr && call->api->ignored != nullptr)
    writer.Ignore(&call->api->ignored->output);
  if (call->api != nullptr && !call->api->unwritten.empty()) {
    const std::string_view stem = call->api->stem;
    writer.LeaveUnwritten(&call->api->unwritten, stem.substr(0, stem.size() - 1));
  }
  const DeviceReader::Together together(recording_->options.device);
  writer.Output("output", "output", output);
  call->made = writer.nonfinite();
  if (record && module != nullptr) {
    const PyRef parameters = ModuleTree::ParametersOf(module);
    ValueWriter of_parameters(&call->entry, recording_->options, style);
    of_parameters.Dict("parameters", "parameters",
                       parameters && PyDict_Check(parameters.get()) ? parameters.get() : nullptr,
                       /*leave_out_none=*/true);
    // Parameters are inputs of this call and of the calls of the modules around it.
    call->given.Add(of_parameters.nonfinite());
    for (const auto& around : Thread().modules) around->given.Add(of_parameters.nonfinite());
  }
  if (call->wants_backward) gradients_->Expect(*call, writer.tensors());
}

bool CallRecorder::RecordsChanges(const OpenCall& call) const {
  const dump::Config& config = recording_->config();
  return call.wanted && !waits_to_record() && !config.pkl &&
         (config.task == Task::kStatistics || config.task == Task::kTensor) &&
         recording_->session->filter().data_mode.forward_output;
}

void CallRecorder::WriteChanged(OpenCall* call, const Api& api, const CallArgs& args,
                                PyObject* result) {
  if (!RecordsChanges(*call)) return;
  ValueWriter writer(&call->entry, recording_->options,
                     recording_->StyleOf(call->entry.name(), /*is_output=*/true));
  WriteChangedArguments(api, args, call->versions, result, &writer);
}

void CallRecorder::WriteChanged(OpenCall* call, PyObject* module) {
  if (!RecordsChanges(*call)) return;
  ValueWriter writer(&call->entry, recording_->options,
                     recording_->StyleOf(call->entry.name(), /*is_output=*/true));
  WriteChangedBuffers(module, call->versions, &writer);
}

bool CallRecorder::DecideForward(OpenCall* call) {
  const std::vector<HeldTensor> held = std::exchange(call->held, {});
  const std::string& name = call->entry.name();
  if (recording_->looks_for_overflow()) {
    call->finding =
        call->flagged ? *call->flagged
                      : overflow_->Judge(name, call->given.Known(), call->made.Known(), call->site);
    if (call->finding.empty()) return false;
    Resolve(Joined(call->given, call->made), &call->entry);
  } else if (!reference_->Differs(call->entry)) {
    return false;
  }
  recording_->StoreAll(held, &call->entry);
  if (recording_->session->collecting() && recording_->session->config().extra_info)
    call->entry.stack = recording_->session->NoteStack(
        call->site, name, [&] { return recording_->stacks.Format(call->site); });
  return true;
}

void CallRecorder::Finish(OpenCall* call) {
  if (!call->wanted || !recording_->session->collecting() ||
      call->dump != recording_->session->dump())
    return;
  if (!recording_->looks_for_overflow()) return Record(call);
  call->flagged = overflow_->AskFlag();
  LateTensors needs = Joined(call->given, call->made);
  if (recording_->DecidesNow(&needs, &call->held)) {
    Record(call);
  } else {
    const auto kept = std::make_shared<OpenCall>(std::move(*call));
    // Graph and tensors are the program's to free.
    kept->edges = InputEdges();
    kept->versions.clear();
    recording_->late.Add(std::move(needs), [this, kept] {
      if (recording_->session->collecting()) Record(kept.get());
    });
  }
  recording_->TakeArrived();
}

void CallRecorder::Record(OpenCall* call) {
  dump::CallCounts& counts =
      call->ticket != 0 ? recording_->coverage.modules : recording_->coverage.apis;
  if (waits_to_record() && !DecideForward(call)) {
    ++counts.ignored;
    return;
  }
  ++counts.recorded;
  if (recording_->looks_for_nan()) call->entry.is_nan = call->made.here.any();
  const BaselineCheck::Offer offer(baseline_, &call->entry, &call->kept);
  recording_->session->Record({recording_->records_values() ? &call->entry : nullptr,
                               call->entry.name(), call->parent, recording_->modules_wanted});
  if (recording_->looks_for_overflow())
    return overflow_->Count(call->entry.name(), call->finding, call->site);
  recording_->TakeArrived();
  if (reference_->on()) reference_->Count(call->entry.name(), call->site);
}

void CallRecorder::WriteList(OpenCall* call, const std::vector<PyRef>& values) {
  if (!call->wanted || !recording_->session->filter().data_mode.forward_output ||
      !recording_->records_values())
    return;
  EntryStyle style = recording_->StyleOf(call->entry.name(), /*is_output=*/true);
  if (waits_to_record()) style.held = &call->held;
  KeepTensors(call, &style);
  ValueWriter writer(&call->entry, recording_->options, style);
  call->entry.BeginSlot("output", "output", Entry::Container::kList);
  if (call->api->ignored != nullptr) writer.Ignore(&call->api->ignored->output);
  for (size_t i = 0; i < values.size(); ++i)
    writer.ValueAt(static_cast<int64_t>(i), values[i].get());
  call->made = writer.nonfinite();
  call->entry.EndSlot();
}

}  // namespace msprobe::capture
