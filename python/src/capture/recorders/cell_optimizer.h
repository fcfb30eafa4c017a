// What a step of a MindSpore optimizer takes and changes, as dicts that are recorded like those of
// PyTorch's optimizers (optimizer_recorder.h): "param_groups", "gradients", "weights", "state".
//
//   const PyRef inputs = CellOptimizerInputs(optimizer, object);   // the gradients
//   const PyRef outputs = CellOptimizerOutputs(optimizer);   // after the step
#pragma once

#include <Python.h>

#include "capture/python/py_ref.h"

namespace msprobe::capture {

// An optimizer of MindSpore is a Cell: `parameters` is the tuple of its weights, and other tuples
// of as many parameters are its moments. `gradients`: the argument of its call, a tuple in the same
// order.
PyRef CellOptimizerInputs(PyObject* optimizer, PyObject* gradients);
PyRef CellOptimizerOutputs(PyObject* optimizer);

}  // namespace msprobe::capture
