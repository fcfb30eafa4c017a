// Takes the place of an attribute whose object cannot be observed in place: an instance with
// __call__, or a builtin of an unfamiliar calling convention. Calls are observed. Everything else
// (attributes, repr, hash, comparisons) is passed on to the original object.
//
//   PyRef stand_in = MakeObservedCallable(original, &api);
//   PyObject_SetAttrString(module, "fused_op", stand_in.get());
#pragma once

#include "capture/calls/interpose.h"
#include "capture/python/py_ref.h"

namespace msprobe::capture {

// `api` is never destroyed.
PyRef MakeObservedCallable(PyObject* original, const Api* api);
// The original object of a stand-in; null when `object` is not a stand-in.
PyObject* OriginalOf(PyObject* object);

bool InitObservedCallable();  // prepares the Python type; once, at import

}  // namespace msprobe::capture
