// CPython 3.11 calls Python functions from Python past the pointer in the function object: there,
// the observer stands in the function's __code__, as the constant of a stub. But compiled code
// compares that code at each call, and the compiler reads it. Both happen only while torch.compile
// evaluates frames in the interpreter's place, and then 3.11 uses the pointer: so the stub is there
// when nobody does, and the function's own code when somebody does.
//
// Any other CPython uses the pointer always, and no stub is ever made.
//
//   std::string why = stub.Prepare(function, calls);   // "" or why it cannot be done
//   stub.Install();
//   CodeStub::Follow();               // when it may have changed who evaluates frames
//   { const CodeStub::Away away; }    // code is read in here
#pragma once

#include <Python.h>

#include <string>

#include "capture/calls/observe.h"
#include "capture/python/py_ref.h"

namespace msprobe::capture {

class CodeStub {
 public:
  CodeStub() = default;
  CodeStub(const CodeStub&) = delete;
  CodeStub& operator=(const CodeStub&) = delete;
  static constexpr bool kNeeded = PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030c0000;

  // Returns "" or why not.
  std::string Prepare(PyObject* function, const ObservedCalls& calls);
  void Install();
  void Remove();
  // The function, or a twin of it while its own code is not in it.
  PyObject* Callee(PyObject* function) const;

  static void Follow();
  class Away {
   public:
    Away();
    ~Away();
    Away(const Away&) = delete;
    Away& operator=(const Away&) = delete;
  };
  static bool Init();  // once, at import
  static void ForEach(void (*visit)(PyObject* code, void* context), void* context);

 private:
  void Place(bool wanted);

  PyRef function_, twin_, code_, stub_, signature_;  // null where no stub is needed
  bool is_installed_ = false;
};

}  // namespace msprobe::capture
