#include "capture/calls/observed_callable.h"

#include "capture/calls/observe.h"

namespace msprobe::capture {
namespace {

struct ObservedCallable {
  PyObject_HEAD PyObject* original;
  const Api* api;
};

PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};

PyObject* Original(PyObject* self) { return reinterpret_cast<ObservedCallable*>(self)->original; }

PyObject* Call(PyObject* self, PyObject* args, PyObject* kwargs) {
  const CallArgs call{.positional = &PyTuple_GET_ITEM(args, 0),
                      .count = PyTuple_GET_SIZE(args),
                      .dict = kwargs,
                      .callable = Original(self)};
  return Observe(*reinterpret_cast<ObservedCallable*>(self)->api, call,
                 [&] { return PyObject_Call(Original(self), args, kwargs); });
}

PyObject* GetAttribute(PyObject* self, PyObject* name) {
  if (Utf8(name) == "__wrapped__") return Py_NewRef(Original(self));
  return PyObject_GetAttr(Original(self), name);
}

// Makes bound methods when the stand-in is an attribute of a class, as the original would.
PyObject* Bind(PyObject* self, PyObject* object, PyObject*) {
  if (object == nullptr || object == Py_None || Py_TYPE(Original(self))->tp_descr_get == nullptr)
    return Py_NewRef(self);
  return PyMethod_New(self, object);
}

PyObject* Compare(PyObject* self, PyObject* other, int operation) {
  PyObject* theirs = OriginalOf(other);
  return PyObject_RichCompare(Original(self), theirs != nullptr ? theirs : other, operation);
}

void Dealloc(PyObject* self) {
  Py_DECREF(Original(self));
  PyObject_Free(self);
}

}  // namespace

PyRef MakeObservedCallable(PyObject* original, const Api* api) {
  ObservedCallable* made = PyObject_New(ObservedCallable, &type);
  if (made == nullptr) return PyRef();
  made->original = Py_NewRef(original);
  made->api = api;
  return PyRef::Steal(reinterpret_cast<PyObject*>(made));
}

PyObject* OriginalOf(PyObject* object) {
  return Py_TYPE(object) == &type ? Original(object) : nullptr;
}

bool InitObservedCallable() {
  type.tp_name = "msprobe._engine.ObservedCallable";
  type.tp_basicsize = sizeof(ObservedCallable);
  type.tp_flags = Py_TPFLAGS_DEFAULT;
  type.tp_call = Call;
  type.tp_getattro = GetAttribute;
  type.tp_setattro = [](PyObject* self, PyObject* name, PyObject* value) {
    return PyObject_SetAttr(Original(self), name, value);
  };
  type.tp_descr_get = Bind;
  type.tp_richcompare = Compare;
  type.tp_hash = [](PyObject* self) { return PyObject_Hash(Original(self)); };
  type.tp_repr = [](PyObject* self) { return PyObject_Repr(Original(self)); };
  type.tp_dealloc = Dealloc;
  return PyType_Ready(&type) == 0;
}

}  // namespace msprobe::capture
