// What a call has changed and does not return: arguments (cache[i] = x, the running statistics of
// batch_norm) and buffers of a module. PyTorch counts the changes of each tensor, so that only
// those that were changed are read.
//
//   SeeArguments(api, args, &versions);                         // before the call
//   WriteChangedArguments(api, args, versions, result, &writer);  // after it, with its results
#pragma once

#include <Python.h>

#include <cstdint>
#include <vector>

#include "capture/calls/interpose.h"
#include "capture/values/value_writer.h"

namespace msprobe::capture {

// A tensor and the number of its changes so far; -1: it does not count them.
struct SeenVersion {
  PyObject* tensor;  // borrowed, and only compared
  int64_t version;
};
using SeenVersions = std::vector<SeenVersion>;

// The tensors among the arguments of a call that may change them; else nothing.
void SeeArguments(const Api& api, const CallArgs& args, SeenVersions* seen);
void SeeBuffers(PyObject* module, SeenVersions* seen);

// The member "changed" of the entry: {"input.1": tensor}. Nothing is written where nothing changed.
// `result`: what the call returned; arguments that it returns are left out.
void WriteChangedArguments(const Api& api, const CallArgs& args, const SeenVersions& seen,
                           PyObject* result, ValueWriter* writer);
// {"buffers.running_mean": tensor}
void WriteChangedBuffers(PyObject* module, const SeenVersions& seen, ValueWriter* writer);

}  // namespace msprobe::capture
