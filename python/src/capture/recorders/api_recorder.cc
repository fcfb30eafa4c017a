#include "capture/recorders/api_recorder.h"

#include <utility>

#include "capture/collectives/collective_call.h"
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

}  // namespace

void* ApiRecorder::Enter(const Api& api, const CallArgs& args) {
  call_place.place = Place::kOutside;
  if (!recording_->sees_calls || modules_->records_only_one() || !recording_->session->collecting())
    return nullptr;
  if (!api.recorded) {
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
  if (recording_->stacks.InCompiledWrapper()) {
    ++recording_->coverage.apis.wrappers;
    return nullptr;
  }
  async_collectives_.CompleteCoalesced();
  std::unique_ptr<OpenCall> call =
      calls_->Begin(api.stem, recording_->session->calls().Next(api.counter), /*is_module=*/false);
  call->api = &api;
  if (api.output_is_arguments) call->wants_backward = false;
  if (!call->wanted) ++recording_->coverage.apis.ignored;
  call_place.place = call->wanted ? Place::kRecorded : Place::kIgnored;
  if (!call->wanted && !call->wants_backward) {
    calls_->Recycle(std::move(call));
    return nullptr;
  }
  if (!calls_->WriteInputs(call.get(), args)) {
    ++traced_calls;
    call_place.place = Place::kOutside;
    recording_->session->calls().ReturnCallNumber(api.counter);
    calls_->Recycle(std::move(call));
    return nullptr;
  }
  calls_->NoteStack(call.get());
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
    if (call->api->collective && result == nullptr) HintAtFailure(keep.text());
    if (call->api->collective && async_collectives_.TakeIfAsync(&call, args, result)) return;
    if (result == nullptr) {
      call->entry.exception = exception;
    } else if (call->api->output_is_arguments) {
      calls_->WriteList(call.get(), Flatten(args));
    } else {
      calls_->WriteOutput(call.get(), result, nullptr);
    }
    if (result != nullptr) NoteMemory(*call, args, result);
    calls_->Finish(call.get());
  }
  calls_->Recycle(std::move(call));
}

void ApiRecorder::NoteMemory(const OpenCall& call, const CallArgs& args, PyObject* result) {
  UnwrittenMemory& memory = recording_->unwritten;
  if (call.api->memory == Api::Memory::kAllocates) memory.Allocated(result, call.entry.name());
  if (memory.empty()) return;
  const Py_ssize_t given = args.count + (args.self != nullptr ? 1 : 0);
  const auto argument = [&](Py_ssize_t i) {
    if (args.self != nullptr && i-- == 0) return args.self;
    return args.positional[i];
  };
  if (call.api->memory == Api::Memory::kFills && given > 0) memory.Written(argument(0));
  if (call.api->memory == Api::Memory::kAssigns && given > 1)
    memory.Assigned(argument(0), argument(1));
  if (call.api->output_is_arguments) {
    for (const PyRef& value : Flatten(args)) memory.Written(value.get());
  }
  if (PyObject* out = KeywordOf(args, "out"); out != nullptr) memory.Written(out);
}

void ApiRecorder::OnCompletionCall(const Api& api, const CallArgs& args, PyObject* result) {
  if (async_collectives_.empty()) return;
  const std::string_view exception = result == nullptr ? TypeName(PyErr_Occurred()) : "";
  const KeepError keep;
  const Interposer::Pause pause;
  recording_->Guarded([&] { async_collectives_.OnCompletionCall(api, args, result, exception); });
}

}  // namespace msprobe::capture
