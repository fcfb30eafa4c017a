// Sees the calls with which a program changes its weights: steps of optimizers, clipping of
// gradients, GradScaler. They are seen as listed functions are (interpose.h); listed calls inside
// them are not recorded. Calls of the closure that a step is given are recorded as anywhere else.
//
//   OptimizerCalls::Follow(Py_TYPE(optimizer));   // the steps of this class
//   OptimizerCalls::Install(&observer);
//   Train();
//   OptimizerCalls::Remove();
#pragma once

#include <Python.h>

#include <cstdint>
#include <string>
#include <vector>

#include "capture/calls/interpose.h"
#include "capture/calls/observe.h"
#include "engine/base/messages/message.h"

namespace msprobe::capture {

struct OptimizerApi : Api {
  enum Role : uint8_t {
    kStep,          // step(self, closure=None) of an optimizer
    kClip,          // clip_grad_norm_(parameters, ...) and others
    kUnscale,       // GradScaler.unscale_(self, optimizer)
    kScalerStep,    // GradScaler.step(self, optimizer)
    kScalerUpdate,  // GradScaler.update(self, new_scale=None)
    kMade,          // runs in the constructor of each optimizer, and prepares the step of its class
    kClosure,       // the closure of a step
  };
  Role role = kStep;
  std::string name;                    // "clip_grad_norm_"
  std::vector<std::string> arguments;  // kClip: the names of its parameters
};

class OptimizerObserver {
 public:
  virtual ~OptimizerObserver() = default;
  // Before the call. Sets call_place. Returns a token; null: the call is not followed. It may ask
  // for another object in the place of an argument.
  virtual void* EnterOptimizer(const OptimizerApi& api, const CallArgs& args,
                               Replacement* replacement) = 0;
  // A closure of a step has returned.
  virtual void AfterClosure(void* token) = 0;
  // `result` is null when the call raised (the exception is set and stays set).
  virtual void LeaveOptimizer(void* token, PyObject* result) = 0;
};

class OptimizerCalls {
 public:
  // From the next Install on (or now, if installed) the calls of this Python function are seen.
  // Returns "" or why they cannot be seen. `decorated`: it is only called by its decorator.
  static Message Add(PyObject* function, OptimizerApi api, bool decorated = false);
  // The same for the steps of all optimizers of exactly this type, once one was constructed.
  static void Follow(PyTypeObject* type);
  static void Install(OptimizerObserver* observer);
  static void Remove();
  // A stand-in for the closure of a step, whose calls are told to AfterClosure. Null: no memory.
  static PyRef StandInFor(PyObject* closure);

  // One call of such a function; called through the interposer.
  static PyObject* Observe(const OptimizerApi& api, const CallArgs& call,
                           PyObject* (*original)(void*), void* context);
};

}  // namespace msprobe::capture
