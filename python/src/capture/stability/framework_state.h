// What a call can change beside its arguments: the state of random generators; and the modes of the
// framework that a second run of a call needs, as context managers.
//
//   const RandomState before = RandomState::Take(tensors, generators, /*of_program=*/false);
//   { const Context no_grad("torch.no_grad"); before.Restore(false); RunAgain(); }
#pragma once

#include <Python.h>

#include <utility>
#include <vector>

#include "capture/python/py_ref.h"

namespace msprobe::capture {

// The object of a dotted name, "torch.autograd.grad", borrowed; null, with no error set, when this
// PyTorch does not have it. Looked up once.
PyObject* Named(const char* name);

// object.name(arguments...), with no error set: null after a failure.
PyRef CallMethod(PyObject* object, const char* name, const PyRef& argument = PyRef());

// Enters a context manager, and leaves it in the destructor. Has no effect when it does not exist.
class Context {
 public:
  // The manager that `name` returns, called with these arguments (a tuple; null: none).
  explicit Context(const char* name, const PyRef& arguments = PyRef(),
                   const PyRef& names = PyRef());
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

 private:
  PyRef manager_;
};

// The second run of a call keeps to itself: its operations do not reach the dispatch modes of the
// program, what it saves for backward does not reach its saved-tensor hooks, and autocast keeps
// none of its tensors.
class OwnOperations {
 public:
  OwnOperations();
  ~OwnOperations();
  OwnOperations(const OwnOperations&) = delete;
  OwnOperations& operator=(const OwnOperations&) = delete;

 private:
  bool cached_;  // autocast keeps weights that it has converted
  Context modes_, hooks_;
};

class RandomState {
 public:
  RandomState() = default;
  // The generators of the host, of the devices of these tensors, and `generators`. `of_program`:
  // also the state of the module random and of numpy.random, if the program has imported it.
  static RandomState Take(const std::vector<PyObject*>& tensors,
                          const std::vector<PyRef>& generators, bool of_program);
  // The same generators, as they are now.
  RandomState Now() const;
  // Whether PyTorch's generators are in the same state.
  bool SameAs(const RandomState& other) const;
  // Sets PyTorch's generators, and those of the program when `of_program` is true.
  void Restore(bool of_program) const;

 private:
  void Read();
  std::vector<PyRef> generators_, states_;
  bool of_program_ = false;
  PyRef random_, numpy_;
};

}  // namespace msprobe::capture
