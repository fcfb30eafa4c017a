// Calls of a plain Python function, seen through the pointer by which the interpreter calls it. The
// function object, its code, hash, name, defaults and closure stay unchanged, because compilers
// compare them. (CPython 3.11 needs more: code_stub.h.)
#pragma once

#include <Python.h>

#include <string>

#include "capture/calls/code_stub.h"
#include "capture/calls/observe.h"
#include "capture/python/py_ref.h"
#include "engine/base/messages/message.h"

namespace msprobe::capture {

// After Prepare, an object of this class must neither move nor be destroyed.
class ObservedFunction {
 public:
  // Returns "", or why the function cannot be observed. `api_of`: see Interposer::AddDispatch;
  // `api` is null then.
  Message Prepare(PyObject* function, const Api* api, Interposer::ApiOf api_of = nullptr);
  // The same for a function that is only called as `function(*args, **kwargs)`, as decorators do:
  // every CPython uses the pointer then, so its code stays its own.
  Message PrepareDecorated(PyObject* function, const Api* api);
  void Install();
  void Remove();
  PyObject* function() const { return function_.get(); }
  const Api* api() const { return observed_.api; }

 private:
  Message Check(PyObject* function) const;
  void Know(PyObject* function);
  static PyObject* Call(PyObject* f, PyObject* const* args, size_t nargsf, PyObject* names);

  ObservedCalls observed_;
  PyRef function_;
  vectorcallfunc original_ = nullptr;
  CodeStub stub_;
};

}  // namespace msprobe::capture
