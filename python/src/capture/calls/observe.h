// One call of an observed callable: what a swapped pointer leads to. Calls the observer's Enter, the
// original, and the observer's Leave.
//
//   PyObject* result = Observe(api, call, [&] { return original(self, args); });
#pragma once

#include <Python.h>

#include <type_traits>

#include "capture/calls/interpose.h"

namespace msprobe::capture {

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

// Which API the calls of a function are: `api`, or, where `api` is null, the one that `api_of` gives
// for the first argument. That argument is not a value of the call then.
struct ObservedCalls {
  const Api* api = nullptr;
  Interposer::ApiOf api_of = nullptr;

  template <typename F>
  PyObject* Observe(CallArgs call, F&& original) const {
    if (api != nullptr) return capture::Observe(*api, call, original);
    const Api* found = call.count > 0 ? api_of(call.positional[0]) : nullptr;
    if (found == nullptr) return original();
    ++call.positional;
    --call.count;
    return capture::Observe(*found, call, original);
  }
};

}  // namespace msprobe::capture
