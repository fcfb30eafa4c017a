#include "capture/collectives/async_collectives.h"

#include <algorithm>

#include "capture/collectives/collective_call.h"
#include "capture/python/process_group.h"
#include "capture/python/torch_api.h"
#include "capture/values/values_in_flight.h"

namespace msprobe::capture {
namespace {

template <typename F>
void ForEachResult(PyObject* result, F&& visit) {
  if (!PyTuple_Check(result) && !PyList_Check(result)) return visit(result);
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(result); ++i)
    visit(PySequence_Fast_GET_ITEM(result, i));
}

PyRef Answer(const PyRef& object, const char* method) {
  PyRef answer =
      object ? PyRef::Steal(PyObject_CallMethod(object.get(), method, nullptr)) : PyRef();
  ClearError();
  return answer;
}

bool IsOnHost(PyObject* value) {
  if (PyList_Check(value) || PyTuple_Check(value)) {
    bool all = true;
    ForEachResult(value, [&](PyObject* item) { all = all && IsOnHost(item); });
    return all;
  }
  if (!TorchApi::Get().IsTensor(value)) return true;
  const PyRef flag = PyRef::Steal(PyObject_GetAttrString(value, "is_cpu"));
  ClearError();
  return flag.get() == Py_True;
}

// Asks whether the work is complete; does not wait. A backend completes the future of a work first,
// and then the work. On a device the future is complete as soon as the work is queued: there the
// future says nothing, and is not asked.
bool IsCompleted(const PyRef& work, const std::vector<PyRef>& values) {
  if (Answer(work, "is_completed").get() == Py_True) return true;
  return std::all_of(values.begin(), values.end(),
                     [](const PyRef& value) { return IsOnHost(value.get()); }) &&
         Answer(Answer(work, "get_future"), "done").get() == Py_True;
}

}  // namespace

std::vector<PyRef> Flatten(const CallArgs& args) {
  std::vector<PyRef> values;
  const Py_ssize_t named = args.names != nullptr ? PyTuple_GET_SIZE(args.names) : 0;
  for (Py_ssize_t i = 0; i < args.count + named; ++i)
    values.push_back(PyRef::Borrow(args.positional[i]));
  PyObject *key, *value;
  for (Py_ssize_t i = 0; args.dict != nullptr && PyDict_Next(args.dict, &i, &key, &value);)
    values.push_back(PyRef::Borrow(value));
  return values;
}

bool AsyncCollectives::TakeIfAsync(std::unique_ptr<OpenCall>* call, const CallArgs& args,
                                   PyObject* result) {
  const Interposer::Pause pause;
  OpenCall& open = **call;
  open.entry.group = DescribeGroup(*open.api->collective, args, result);
  if (result == nullptr) return false;
  AsyncCall async;
  if (open.api->collective->is_functional()) {
    async.functional = true;
    ForEachResult(result, [&](PyObject* value) {
      if (TorchApi::Get().IsTensor(value)) async.handles.push_back(PyRef::Borrow(value));
    });
    if (async.handles.empty()) return false;
    async.values = async.handles;
    async.call = std::move(*call);
    const std::vector<PyRef> written = async.values;
    Expect(std::move(async), written);
    return true;
  }
  const PyRef group = GroupOf(*open.api->collective, args);
  if (group && IsCoalescing(group.get())) {
    async.group = group;
    ++coalescing_;
  } else {
    ForEachResult(result, [&](PyObject* work) {
      if (IsWork(work)) async.handles.push_back(PyRef::Borrow(work));
    });
    if (async.handles.empty()) return false;
  }
  async.values = Flatten(args);
  std::vector<PyRef> written;
  // The source of a broadcast keeps what it has.
  const bool gives = open.entry.group.role == CollectiveGroup::Role::kSource;
  PyObject* results = open.api->collective->Results(args);
  if (results != nullptr && !(gives && open.api->collective->name() == "broadcast"))
    written.push_back(PyRef::Borrow(results));
  async.call = std::move(*call);
  Expect(std::move(async), written);
  return true;
}

void AsyncCollectives::Expect(AsyncCall async, const std::vector<PyRef>& written) {
  const void* const key = async.call.get();
  ValuesInFlight::IsDone is_done;
  if (!async.handles.empty() && !async.functional) {
    is_done = [this, handles = async.handles, values = async.values] {
      const Polling polling(this);
      return std::all_of(handles.begin(), handles.end(),
                         [&](const PyRef& work) { return IsCompleted(work, values); });
    };
  }
  recording_->in_flight.Begin(key, written, std::move(is_done));
  calls_.push_back(std::move(async));
}

void AsyncCollectives::OnWatchedCall(const Api& api, const CallArgs& args, PyObject* result,
                                     std::string_view exception) {
  if (calls_.empty() || polls_) return;
  const std::vector<PyRef> given = Flatten(args);
  if (given.empty()) return;
  switch (api.kind) {
    case Api::kPoll:
      if (result != Py_True) return;
      [[fallthrough]];
    case Api::kWait:
      if (coalescing_ > 0) EndCoalescing(nullptr);
      return OnWaited(given[0].get(), exception);
    case Api::kCoalesce:
      if (given.size() > 1 && IsWork(given[1].get())) EndCoalescing(given[1].get());
      return;
    case Api::kCompiler:
    case Api::kEvaluator:
    case Api::kConverter:
    case Api::kCall:
    case Api::kFunction:
    case Api::kAllocator:
    case Api::kResizer:
    case Api::kFiller:
    case Api::kPatcher:
    case Api::kOptimizer:
      return;
  }
}

void AsyncCollectives::OnWaited(PyObject* handle, std::string_view exception) {
  const bool is_tensor = TorchApi::Get().IsTensor(handle);
  std::list<AsyncCall> complete;
  for (auto it = calls_.begin(); it != calls_.end();) {
    const auto next = std::next(it);
    const size_t before = it->handles.size();
    // Whoever waits for a part of a result has waited for all of it.
    std::erase_if(it->handles, [&](const PyRef& h) {
      return h.get() == handle || (is_tensor && it->functional && Overlap(h.get(), handle));
    });
    // A work that failed is not waited for a second time, so its call is complete as well.
    if (it->handles.size() < before && (it->handles.empty() || !exception.empty()))
      complete.splice(complete.end(), calls_, it);
    it = next;
  }
  for (AsyncCall& async : complete) Complete(std::move(async), exception, /*at_stop=*/false);
}

// For all calls whose coalescing manager has ended: `work` is the work that the manager got for
// them, and they wait for it. Null: there is no work that the program could wait for, so the calls
// are complete.
void AsyncCollectives::EndCoalescing(PyObject* work) {
  std::list<AsyncCall> complete;
  for (auto it = calls_.begin(); it != calls_.end();) {
    const auto next = std::next(it);
    if (it->group && !IsCoalescing(it->group.get())) {
      it->group = PyRef();
      --coalescing_;
      if (work != nullptr) {
        it->handles.push_back(PyRef::Borrow(work));
      } else {
        complete.splice(complete.end(), calls_, it);
      }
    }
    it = next;
  }
  for (AsyncCall& async : complete) Complete(std::move(async), "", /*at_stop=*/false);
}

void AsyncCollectives::Complete(AsyncCall async, std::string_view exception, bool at_stop) {
  OpenCall* call = async.call.get();
  if (!at_stop) recording_->in_flight.End(call, recording_->options);
  bool is_final = exception.empty();
  for (const PyRef& handle : async.handles)
    is_final = is_final && at_stop && !async.functional && IsCompleted(handle, async.values);
  if (async.group) is_final = false;
  if (!exception.empty()) {
    call->entry.exception = exception;
  } else if (is_final) {
    writer_->WriteList(call, async.values);
  }
  call->entry.completion = !exception.empty() ? "failed"
                           : !is_final        ? "not complete at stop"
                           : at_stop          ? "complete at stop"
                                              : "waited for";
  writer_->Finish(call);
  writer_->Recycle(std::move(async.call));
}

void AsyncCollectives::Flush() {
  const Interposer::Pause pause;
  if (coalescing_ > 0) EndCoalescing(nullptr);
  std::list<AsyncCall> rest;
  rest.swap(calls_);
  coalescing_ = 0;
  for (AsyncCall& async : rest) Complete(std::move(async), "", /*at_stop=*/true);
}

}  // namespace msprobe::capture
