// What a call is from its beginning to its end: an entry that is composed, and recorded when it is
// whole.
#include <string>
#include <utility>

#include "capture/collectives/collective_call.h"
#include "capture/collector.h"
#include "capture/python/torch_api.h"
#include "engine/model/names.h"

namespace msprobe::capture {

std::unique_ptr<OpenCall> Collector::Begin(const std::string& stem, int64_t number,
                                           bool is_module) {
  ThreadState& thread = Thread();
  std::unique_ptr<OpenCall> call;
  if (thread.spare.empty()) {
    call = std::make_unique<OpenCall>();
  } else {
    call = std::move(thread.spare.back());
    thread.spare.pop_back();
  }
  dump::Filter& filter = run_.session->filter();
  std::string name;
  run_.session->NameCall(stem, number, is_module, &name, &call->backward);
  call->entry.Begin(name);
  if (thread.modules.empty()) {
    call->parent.clear();
    call->parent_backward.clear();
  } else {
    call->parent = thread.modules.back()->entry.name();
    call->parent_backward = thread.modules.back()->backward;
  }
  call->step = run_.session->step();
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
  return call;
}

void Collector::Recycle(std::unique_ptr<OpenCall> call) {
  call->edges = InputEdges();
  Thread().spare.push_back(std::move(call));
}

bool Collector::WriteInputs(OpenCall* call, const CallArgs& args) {
  const bool record =
      call->wanted && run_.session->filter().data_mode.forward_input && run_.records_values();
  if (!record) run_.scratch.Begin("");
  EntryStyle style =
      record ? run_.StyleOf(call->entry.name(), /*is_output=*/false) : EntryStyle{Reading::kMet};
  if (waits_to_record() && call->wanted) {
    style.reading = Reading::kMeasured;  // what was given excuses what is made of it
    style.held = &call->held;
  }
  ValueWriter writer(record ? &call->entry : &run_.scratch, run_.options, style);
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
  if (!call->wanted || !(run_.session->config().extra_info || waits_to_record())) return;
  bool is_new;
  call->site = run_.stacks.Intern(&is_new);
  if (waits_to_record()) return;  // not known yet whether it is recorded
  call->entry.stack =
      run_.session->NoteStack(call->site, call->entry.name(), [&] { return run_.stacks.Format(); });
  if (run_.modules_wanted && call->parent.empty()) NoteRegion(call, run_.stacks.Region(call->site));
}

void Collector::NoteRegion(OpenCall* call, const std::string& region) {
  if (region.empty()) return;
  call->parent = region;
  int64_t& step = region_steps_.try_emplace(region, -1).first->second;
  if (std::exchange(step, run_.session->step()) != run_.session->step())
    run_.session->Record({.name = region, .parent = "", .construct = true});
}

void* Collector::Enter(const Api& api, const CallArgs& args) {
  call_place.place = Place::kOutside;
  if (!sees_calls_ || only_module_ != nullptr || !run_.session->collecting()) return nullptr;
  if (!api.recorded) {
    (void)run_.session->NextCall(api.counter);
    ++run_.coverage.apis.ignored;
    call_place.place = Place::kIgnored;
    return nullptr;
  }
  const KeepError keep;
  const QuietTorch quiet;
  return Guarded([&] { return EnterCall(api, args); });
}

void* Collector::EnterCall(const Api& api, const CallArgs& args) {
  if (run_.stacks.InCompiledWrapper()) {
    ++run_.coverage.apis.wrappers;
    return nullptr;
  }
  late_.Settle();
  std::unique_ptr<OpenCall> call =
      Begin(api.stem, run_.session->NextCall(api.counter), /*is_module=*/false);
  call->api = &api;
  if (api.output_is_arguments) call->wants_backward = false;
  if (!call->wanted) ++run_.coverage.apis.ignored;
  call_place.place = call->wanted ? Place::kRecorded : Place::kIgnored;
  if (!call->wanted && !call->wants_backward) {
    Recycle(std::move(call));
    return nullptr;
  }
  if (!WriteInputs(call.get(), args)) {
    ++traced_calls;
    call_place.place = Place::kOutside;
    run_.session->TakeBack(api.counter);
    Recycle(std::move(call));
    return nullptr;
  }
  NoteStack(call.get());
  return call.release();
}

void Collector::WriteOutput(OpenCall* call, PyObject* output, PyObject* module) {
  const bool record =
      call->wanted && run_.session->filter().data_mode.forward_output && run_.records_values();
  if (!record) run_.scratch.Begin("");
  EntryStyle style =
      record ? run_.StyleOf(call->entry.name(), /*is_output=*/true) : EntryStyle{Reading::kMet};
  if (waits_to_record()) style.held = &call->held;
  ValueWriter writer(record ? &call->entry : &run_.scratch, run_.options, style);
  if (call->api != nullptr && call->api->ignored != nullptr)
    writer.Ignore(&call->api->ignored->output);
  writer.Output("output", "output", output);
  const std::vector<PyObject*> outputs = writer.tensors();
  call->made = writer.nonfinite();
  if (record && module != nullptr) {
    const PyRef parameters = ModuleTree::ParametersOf(module);
    ValueWriter of_parameters(&call->entry, run_.options, style);
    of_parameters.Dict("parameters", "parameters",
                       parameters && PyDict_Check(parameters.get()) ? parameters.get() : nullptr,
                       /*leave_out_none=*/true);
    // They went in, here and in the modules around.
    call->given.Add(of_parameters.nonfinite());
    for (const auto& around : Thread().modules) around->given.Add(of_parameters.nonfinite());
  }
  if (call->wants_backward &&
      ArmBackward(call->edges, outputs, this, call->step, call->backward, call->parent_backward)) {
    ++run_.coverage.expected_gradients;
    if (run_.config().pkl && call->entry.stack >= 0)
      backward_stacks_[call->backward] = call->entry.stack;
    if (run_.looks_for_overflow()) overflow_.Expect(call->backward, call->site);
  }
}

bool Collector::SettleForward(OpenCall* call) {
  const std::vector<Held> held = std::exchange(call->held, {});
  const std::string& name = call->entry.name();
  if (run_.looks_for_overflow()) {
    call->found = overflow_.Judge(name, call->given, call->made, call->site);
    if (call->found.empty()) return false;
  } else if (!DiffersFromReference(call)) {
    return false;
  }
  run_.StoreAll(held, &call->entry);
  if (run_.session->collecting() && run_.session->config().extra_info)
    call->entry.stack =
        run_.session->NoteStack(call->site, name, [&] { return run_.stacks.Format(call->site); });
  return true;
}

void Collector::Finish(OpenCall* call) {
  if (!call->wanted || !run_.session->collecting() || call->step != run_.session->step()) return;
  dump::CallCounts& counts = call->ticket != 0 ? run_.coverage.modules : run_.coverage.apis;
  if (waits_to_record() && !SettleForward(call)) {
    ++counts.ignored;
    return;
  }
  ++counts.recorded;
  if (run_.looks_for_nan()) call->entry.is_nan = call->made.any();
  run_.session->Record({run_.records_values() ? &call->entry : nullptr, call->entry.name(),
                        call->parent, run_.modules_wanted});
  if (run_.device.many_pending()) run_.FetchDeferred();
  if (run_.looks_for_overflow()) overflow_.Count(call->entry.name(), call->found, call->site);
  if (search_ != nullptr) CountDifference(call->entry.name(), call->site);
}

void Collector::WriteList(OpenCall* call, const std::vector<PyRef>& values) {
  if (!call->wanted || !run_.session->filter().data_mode.forward_output || !run_.records_values())
    return;
  EntryStyle style = run_.StyleOf(call->entry.name(), /*is_output=*/true);
  if (waits_to_record()) style.held = &call->held;
  ValueWriter writer(&call->entry, run_.options, style);
  call->entry.BeginSlot("output", "output", Entry::Container::kList);
  if (call->api->ignored != nullptr) writer.Ignore(&call->api->ignored->output);
  for (size_t i = 0; i < values.size(); ++i)
    writer.ValueAt(static_cast<int64_t>(i), values[i].get());
  call->made = writer.nonfinite();
  call->entry.EndSlot();
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
    if (call->api->collective && result == nullptr) HintAtFailure(keep.text());
    if (call->api->collective && late_.Postpone(&call, args, result)) return;
    if (result == nullptr) {
      call->entry.exception = exception;
    } else if (call->api->output_is_arguments) {
      WriteList(call.get(), Flatten(args));
    } else {
      WriteOutput(call.get(), result, nullptr);
    }
    Finish(call.get());
  }
  Recycle(std::move(call));
}

void Collector::Learn(const Api& api, const CallArgs& args, PyObject* result) {
  if (late_.empty()) return;
  const std::string_view exception = result == nullptr ? TypeName(PyErr_Occurred()) : "";
  const KeepError keep;
  const Interposer::Pause pause;
  Guarded([&] { late_.Learn(api, args, result, exception); });
}

}  // namespace msprobe::capture
