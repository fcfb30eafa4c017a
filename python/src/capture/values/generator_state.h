// The state of the random generator that a call will draw from, as a fingerprint: calls that draw
// from equal states draw the same numbers.
//
//   AppendGeneratorState(GeneratorOf(args), &entry.random_state);
#pragma once

#include <Python.h>

#include <string>

#include "capture/calls/interpose.h"
#include "capture/python/py_ref.h"

namespace msprobe::capture {

// The default generator of the device of a tensor. Null: of the host, whose tensors have no such
// generator, or the device has none.
PyRef DeviceGeneratorOf(PyObject* tensor);

// The generator of a call: its argument `generator`, else that of the device of its argument
// `device` or of its first tensor, else that of the host. Null: this PyTorch has none. Never leaves
// a Python error set.
PyRef GeneratorOf(const CallArgs& args);

// Appends 16 hexadecimal digits; nothing when there is no generator, or its state cannot be read (a
// device that captures a graph). Waits for no device: the state of its generator lies on the host.
void AppendGeneratorState(const PyRef& generator, std::string* out);

}  // namespace msprobe::capture
