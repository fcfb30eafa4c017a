#include "capture/recorders/api_recorder.h"

#include <utility>

#include "capture/collectives/collective_call.h"
#include "capture/python/torch_api.h"

namespace msprobe::capture {

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
    calls_->Finish(call.get());
  }
  calls_->Recycle(std::move(call));
}

void ApiRecorder::OnCompletionCall(const Api& api, const CallArgs& args, PyObject* result) {
  if (async_collectives_.empty()) return;
  const std::string_view exception = result == nullptr ? TypeName(PyErr_Occurred()) : "";
  const KeepError keep;
  const Interposer::Pause pause;
  recording_->Guarded([&] { async_collectives_.OnCompletionCall(api, args, result, exception); });
}

}  // namespace msprobe::capture
