// Makes Python types of small callables of ours: they are called by vectorcall, without a tuple of
// arguments, and freed by a function of their own.
//
//   struct Hook { PyObject_HEAD vectorcallfunc call; };
//   ReadyCallableType<Hook>(&hook_type, "msprobe._engine.Hook", DeallocHook);
#pragma once

#include <Python.h>

#include <cstddef>

namespace msprobe::capture {

template <typename Object>
bool ReadyCallableType(PyTypeObject* type, const char* name, destructor dealloc) {
  type->tp_name = name;
  type->tp_basicsize = sizeof(Object);
  type->tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
  type->tp_vectorcall_offset = offsetof(Object, call);
  type->tp_call = PyVectorcall_Call;
  type->tp_dealloc = dealloc;
  return PyType_Ready(type) == 0;
}

}  // namespace msprobe::capture
