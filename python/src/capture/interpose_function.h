// Calls of a plain Python function, seen by giving the function another __code__: a stub whose
// constant is our observer. The function object, its hash, name, defaults and closure stay. (From
// CPython 3.11 on Python-to-Python calls do not go through a pointer that could be swapped
// instead.)
#pragma once

#include <Python.h>

#include <string>
#include <type_traits>

#include "capture/interpose.h"
#include "capture/py_ref.h"

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

class ObservedFunction {
 public:
  // Returns "" or why not.
  // `api_of` set: see Interposer::AddDispatch; `api` is null then.
  std::string Prepare(PyObject* function, const Api* api, Interposer::ApiOf api_of = nullptr);
  void Install();
  void Remove();
  void Release(bool installed);  // for good
  PyObject* function() const { return function_.get(); }
  const Api* api() const { return api_; }

  static bool Init();
  static void ForEachStub(void (*visit)(PyObject* code, void* context), void* context);

 private:
  const Api* api_ = nullptr;
  PyRef function_, code_, stub_, signature_;
  bool released_ = false;
};

}  // namespace msprobe::capture
