// Stands in the place of an attribute whose object cannot be observed in place (an instance with
// __call__, a builtin of an unfamiliar calling convention): calls are seen, everything else is
// asked of the object itself, which is also what it equals.
//
//   PyRef stand_in = MakeObservedCallable(original, &api);
//   PyObject_SetAttrString(module, "fused_op", stand_in.get());
#pragma once

#include "capture/calls/interpose.h"
#include "capture/python/py_ref.h"

namespace msprobe::capture {

// `api` must live for ever.
PyRef MakeObservedCallable(PyObject* original, const Api* api);
// The object a stand-in stands for; null when `object` is none.
PyObject* OriginalOf(PyObject* object);

bool InitObservedCallable();  // readies the type; once, at import

}  // namespace msprobe::capture
