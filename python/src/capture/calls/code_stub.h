// How calls of Python functions are seen on CPython 3.11.
//
// The other versions of CPython call a Python function through a pointer in the function object
// (interpose_function.h swaps it), and no stub is ever made for them. CPython 3.11 does not use the
// pointer when Python code calls Python code. There, the function's __code__ is replaced by a stub:
// a few instructions that call an observer, which is a constant of the stub.
//
// torch.compile must not see the stub: the compiler reads a function's code, and compiled code
// compares it at each call. Both happen only while torch.compile evaluates frames in place of the
// interpreter. Exactly then CPython 3.11 does use the pointer. So the stub is installed while the
// interpreter evaluates frames, and the function's own code while torch.compile does.
//
//   Message why = stub.Prepare(function, calls);   // "", or why it cannot be done
//   stub.Install();
//   CodeStub::FollowEvaluator();           // after a call that may change who evaluates frames
//   { const CodeStub::StubsRemoved guard; }   // around code that reads the code of functions
#pragma once

#include <Python.h>

#include <string>

#include "capture/calls/observe.h"
#include "capture/python/py_ref.h"
#include "engine/base/messages/message.h"

namespace msprobe::capture {

class CodeStub {
 public:
  CodeStub() = default;
  CodeStub(const CodeStub&) = delete;
  CodeStub& operator=(const CodeStub&) = delete;
  static constexpr bool kNeeded = PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030c0000;

  // Returns "", or why the function cannot get a stub.
  Message Prepare(PyObject* function, const ObservedCalls& calls);
  void Install();
  void Remove();
  // What to call to run the function's own code: the function, or, while the stub is in it, a copy
  // of the function that has its own code.
  PyObject* Callee(PyObject* function) const;

  // Puts the stubs in, or takes them out, according to who evaluates frames now.
  static void FollowEvaluator();
  // Takes all stubs out for as long as an object of this class lives.
  class StubsRemoved {
   public:
    StubsRemoved();
    ~StubsRemoved();
    StubsRemoved(const StubsRemoved&) = delete;
    StubsRemoved& operator=(const StubsRemoved&) = delete;
  };
  static bool Init();  // once, at import
  // Calls `visit` for the code object of each stub.
  static void ForEach(void (*visit)(PyObject* code, void* context), void* context);

 private:
  void Place(bool wanted);

  PyRef function_, twin_, code_, stub_, signature_;  // null where no stub is needed
  bool is_installed_ = false;
};

}  // namespace msprobe::capture
