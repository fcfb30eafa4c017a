#include "capture/recorders/api_recorder.h"

#include <utility>

#include "capture/collectives/collective_call.h"
#include "capture/python/framework.h"
#include "capture/python/torch_api.h"

namespace msprobe::capture {
namespace {

// The value of a keyword argument, borrowed; null: the call does not give it.
PyObject* KeywordOf(const CallArgs& args, const char* name) {
  if (args.dict != nullptr) {
    PyObject* found = PyDict_GetItemString(args.dict, name);
    ClearError();
    return found;
  }
  const Py_ssize_t count = args.names == nullptr ? 0 : PyTuple_GET_SIZE(args.names);
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (Utf8(PyTuple_GET_ITEM(args.names, i)) == name) return args.positional[args.count + i];
  }
  return nullptr;
}

// What the object that is called was constructed with: a dict, for objects such as MindSpore's
// Primitives, in a call without keyword arguments.
PyRef MadeWith(const Api& api, const CallArgs& args) {
  const char* const attribute = Framework::Get().made_with;
  if (attribute == nullptr || !api.of_object || args.callable == nullptr || args.dict != nullptr ||
      args.names != nullptr)
    return PyRef();
  static PyObject* const name = PyUnicode_InternFromString(attribute);
  PyRef dict = PyRef::Steal(PyObject_GetAttr(args.callable, name));
  ClearError();
  return dict && PyDict_Check(dict.get()) ? std::move(dict) : PyRef();
}

}  // namespace

void* ApiRecorder::Enter(const Api& api, const CallArgs& args) {
  call_place.place = Place::kOutside;
  if (!recording_->apis_wanted && api.collective == nullptr) return nullptr;
  if (!recording_->sees_calls || modules_->records_only_one() || !recording_->session->collecting())
    return nullptr;
  if (!api.recorded && api.collective == nullptr) {
    (void)recording_->session->calls().Next(api.counter);
    ++recording_->coverage.apis.ignored;
    call_place.place = Place::kIgnored;
    return nullptr;
  }
  const KeepError keep;
  const QuietTorch quiet;
  return recording_->Guarded([&] { return EnterCall(api, args); });
}

void* ApiRecorder::EnterCall(const Api& api, const CallArgs& args) {
  // The older tools, whose files these are, have no entries of Functions.
  if (api.kind == Api::kFunction && recording_->config().pkl) return nullptr;
  if (recording_->stacks.InCompiledCode()) {
    ++recording_->coverage.apis.wrappers;
    return nullptr;
  }
  async_collectives_.CompleteCoalesced();
  std::unique_ptr<OpenCall> call =
      calls_->Begin(api.stem, recording_->session->calls().Next(api.counter), /*is_module=*/false);
  call->api = &api;
  if (api.output_is_arguments || api.collective != nullptr) call->wants_backward = false;
  // One that is not recorded is followed all the same: what it writes may not be read yet.
  if (!recording_->apis_wanted || !api.recorded) call->wanted = false;
  if (!call->wanted) ++recording_->coverage.apis.ignored;
  call_place.place = call->wanted ? Place::kRecorded : Place::kIgnored;
  if (!call->wanted && !call->wants_backward && api.collective == nullptr) {
    calls_->Recycle(std::move(call));
    return nullptr;
  }
  const PyRef made_with = MadeWith(api, args);
  CallArgs given = args;
  if (made_with) given.dict = made_with.get();
  if (!calls_->WriteInputs(call.get(), given)) {
    ++traced_calls;
    call_place.place = Place::kOutside;
    recording_->session->calls().ReturnCallNumber(api.counter);
    calls_->Recycle(std::move(call));
    return nullptr;
  }
  SeeArguments(api, args, &call->versions);
  calls_->NoteStack(call.get());
  if (api.may_draw) calls_->NoteGenerator(call.get(), args);
  if (call->parent.empty()) modules_->NameFollowed(&call->entry.module);
  return call.release();
}

void ApiRecorder::Leave(void* token, const CallArgs& args, PyObject* result) {
  std::unique_ptr<OpenCall> call(static_cast<OpenCall*>(token));
  recording_->Guarded([&] { LeaveCall(std::move(call), args, result); });
}

void ApiRecorder::LeaveCall(std::unique_ptr<OpenCall> call, const CallArgs& args,
                            PyObject* result) {
  {
    const std::string_view exception = result == nullptr ? TypeName(PyErr_Occurred()) : "";
    const KeepError keep;
    const QuietTorch quiet;
    // Before the results are recorded: what the call has written is no unwritten memory any more.
    // The results of an asynchronous collective are recorded when they have come.
    if (result != nullptr) NoteMemory(*call, args);
    if (call->api->collective && result == nullptr) HintAtFailure(keep.text());
    if (call->api->collective) ForgetNumbersOf(Flatten(args), &recording_->known);
    if (call->api->collective && async_collectives_.TakeIfAsync(&call, args, result)) return;
    if (result == nullptr) {
      call->entry.exception = exception;
    } else if (call->api->output_is_arguments) {
      calls_->WriteList(call.get(), Flatten(args));
    } else {
      calls_->WriteOutput(call.get(), result, nullptr);
      calls_->WriteChanged(call.get(), *call->api, args, result);
    }
    calls_->Finish(call.get());
  }
  calls_->Recycle(std::move(call));
}

void ApiRecorder::NoteMemory(const OpenCall& call, const CallArgs& args) {
  UnwrittenMemory& memory = recording_->unwritten;
  if (memory.empty()) return;
  const Py_ssize_t given = args.count + (args.self != nullptr ? 1 : 0);
  const auto argument = [&](Py_ssize_t i) {
    if (args.self != nullptr && i-- == 0) return args.self;
    return args.positional[i];
  };
  PyObject* out = KeywordOf(args, "out");
  if (out != nullptr) memory.Written(out);
  switch (call.api->memory) {
    case Api::Memory::kFills:
      if (given > 0) memory.Written(argument(0));
      return;
    case Api::Memory::kAssigns:
      if (given > 1) memory.Assigned(argument(0), argument(1));
      return;
    case Api::Memory::kUpdates:
      return;
    case Api::Memory::kOther:
      break;
  }
  // A function that changes an argument and whose name does not say so fills it, as far as is
  // known.
  const auto note = [&](PyObject* value) {
    if (call.api->output_is_arguments || memory.HasChanged(value, call.entry))
      memory.Written(value);
  };
  if (args.self != nullptr) note(args.self);
  for (const PyRef& value : Flatten(args)) note(value.get());
}

void ApiRecorder::NoteAllocation(const Api& api, const CallArgs& args, PyObject* result) {
  if (result == nullptr || !recording_->sees_calls || !recording_->session->collecting()) return;
  const KeepError keep;
  const QuietTorch quiet;
  recording_->Guarded([&] {
    bool is_new;
    const int64_t site = recording_->stacks.Intern(&is_new);
    const std::string line = recording_->WhereIs(site);
    const std::string name = line.empty() ? api.prefix : api.prefix + ": " + line;
    if (api.kind == Api::kResizer) {
      recording_->unwritten.Freed(args.address_before);
      recording_->unwritten.Grown(args.self != nullptr ? args.self : args.positional[0],
                                  args.bytes_before, name);
    } else {
      recording_->unwritten.Allocated(result, name);
    }
  });
}

void ApiRecorder::OnWatchedCall(const Api& api, const CallArgs& args, PyObject* result) {
  if (api.kind == Api::kAllocator || api.kind == Api::kResizer)
    return NoteAllocation(api, args, result);
  if (api.kind == Api::kFiller) {
    if (result == nullptr || recording_->unwritten.empty()) return;
    const KeepError keep;
    const QuietTorch quiet;
    PyObject* const out = KeywordOf(args, "out");
    PyObject* const filled = out != nullptr ? out : args.count > 0 ? args.positional[0] : nullptr;
    if (filled != nullptr) recording_->Guarded([&] { recording_->unwritten.Written(filled); });
    return;
  }
  if (async_collectives_.empty()) return;
  const std::string_view exception = result == nullptr ? TypeName(PyErr_Occurred()) : "";
  const KeepError keep;
  const Interposer::Pause pause;
  recording_->Guarded([&] {
    async_collectives_.OnWatchedCall(api, args, result, exception);
    recording_->TakeArrived();  // of a call that has no entry, too
  });
}

}  // namespace msprobe::capture
