// One call of an observed callable: what a swapped pointer leads to. Calls the observer's Enter,
// the original, and the observer's Leave.
//
//   PyObject* result = Observe(api, call, [&] { return original(self, args); });
#pragma once

#include <Python.h>

#include <type_traits>
#include <utility>
#include <vector>

#include "capture/calls/interpose.h"
#include "capture/python/py_ref.h"

namespace msprobe::capture {

// Number of listed calls that run on this thread: only the outermost one is recorded.
inline constinit thread_local int listed_depth = 0;

// An argument of the running call in whose place the original function gets another object.
struct Replacement {
  PyObject* argument = nullptr;  // null: no argument is replaced
  PyRef with;
};
// Of the call that is about to begin on this thread; null: none. Set by OptimizerCalls.
inline constinit thread_local const Replacement* next_replacement = nullptr;

// Calls `run(positional, dict)` with copies of the arguments in which `r.argument` is replaced.
// Keywords that stand after the positional arguments are replaced among those.
template <typename Run>
PyObject* WithReplacement(const Replacement& r, const CallArgs& call, Run&& run) {
  const Py_ssize_t names = call.names == nullptr ? 0 : PyTuple_GET_SIZE(call.names);
  std::vector<PyObject*> values(call.positional, call.positional + call.count + names);
  for (PyObject*& value : values) value = value == r.argument ? r.with.get() : value;
  const PyRef dict = PyRef::Steal(call.dict == nullptr ? nullptr : PyDict_Copy(call.dict));
  PyObject *key, *value;
  for (Py_ssize_t at = 0; dict && PyDict_Next(dict.get(), &at, &key, &value);) {
    if (value == r.argument) PyDict_SetItem(dict.get(), key, r.with.get());
  }
  return run(values.data(), dict.get());
}

// Runs `original(context)` between Enter and Leave when this is the outermost listed call of the
// thread.
PyObject* ObserveCall(const Api& api, const CallArgs& call, PyObject* (*original)(void*),
                      void* context);

template <typename F>
PyObject* Observe(const Api& api, const CallArgs& call, F&& original) {
  using Function = std::remove_reference_t<F>;
  return ObserveCall(
      api, call, [](void* f) -> PyObject* { return (*static_cast<Function*>(f))(); }, &original);
}

// Which API the calls of a function are: `api`, or, where `api` is null, the one that `api_of`
// gives for the first argument. That argument is not a value of the call then.
struct ObservedCalls {
  const Api* api = nullptr;
  Interposer::ApiOf api_of = nullptr;

  template <typename F>
  PyObject* Observe(CallArgs call, F&& original) const {
    if (api != nullptr) return capture::Observe(*api, call, original);
    const Api* found = call.count > 0 ? api_of(call.positional[0]) : nullptr;
    if (found == nullptr) return original();
    call.callable = call.positional[0];
    ++call.positional;
    --call.count;
    return capture::Observe(*found, call, original);
  }
};

}  // namespace msprobe::capture
