// A call of the program that is kept so that it can be run again with other tensors.
//
//   const HeldCall held(args);
//   if (Message why = held.WhyNot(); !why.empty()) Skip(std::move(why));
//   if (!held.ChangedArguments())
//     PyRef result = held.Run([](PyObject* tensor) { return Detached(tensor); });
#pragma once

#include <Python.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "capture/calls/interpose.h"
#include "capture/python/py_ref.h"
#include "engine/base/messages/message.h"

namespace msprobe::capture {

class HeldCall {
 public:
  // Gives the tensor that takes the place of an argument; null: there is none, and the call is not
  // run. Asked once for each tensor object.
  using Change = std::function<PyRef(PyObject* tensor)>;

  HeldCall() = default;
  explicit HeldCall(const CallArgs& args);

  // Why it cannot be run again, in words that follow a number of calls ("3 take no tensor"); null:
  // it can. Never leaves a Python error set.
  Message WhyNot() const;
  bool IsTraced() const;  // a compiler traces it

  const std::vector<PyObject*>& tensors() const { return tensors_; }  // borrowed, in order
  const std::vector<PyRef>& generators() const { return generators_; }
  PyObject* callable() const { return callable_.get(); }
  // The value of a keyword argument, borrowed; null: the call does not give it.
  PyObject* Keyword(const char* name) const;

  // Runs keep working after the program, or this call, has changed its arguments: the later runs
  // get copies of the tensors as they are now.
  void CopyTensors();
  bool has_copies() const { return !copies_.empty(); }
  // Whether the program has changed a tensor among the arguments since.
  bool ChangedArguments() const;
  // Of a tensor among the arguments, what runs get: itself, or its copy.
  PyObject* CopyOf(PyObject* tensor) const;

  // Calls it with changed tensors: its result, null (with no error set) when that raised.
  // `changed`, if given, gets the tensors that took the places of tensors().
  PyRef Run(const Change& change, std::vector<PyRef>* changed = nullptr) const;

 private:
  PyRef callable_, arguments_, keywords_;  // a tuple; a dict, or null
  std::vector<PyObject*> tensors_;
  std::vector<int64_t> versions_;
  std::vector<PyRef> generators_, copies_;
};

// The tensors in a value (a tensor, or lists, tuples and dicts of values), in order; borrowed.
std::vector<PyObject*> TensorsIn(PyObject* value);

// tensor.detach(); null, with no error set, after a failure.
PyRef Detached(PyObject* tensor);
// A copy with the same strides, and the same alignment in memory: operations take the same path for
// it, so that they give the same bits. Null, with no error set, after a failure.
PyRef Copied(PyObject* tensor);

}  // namespace msprobe::capture
