#include "capture/python/module_attributes.h"

namespace msprobe::capture {
namespace {

// torch.nn.Module; null when there is none. Borrowed.
PyTypeObject* UsualModule() {
  static PyObject* const type = [] {
    const PyRef torch_nn = PyRef::Steal(PyImport_ImportModule("torch.nn"));
    PyObject* found =
        torch_nn ? PyObject_GetAttrString(torch_nn.get(), "Module") : nullptr;  // never released
    ClearError();
    return found != nullptr && PyType_Check(found) ? found : nullptr;
  }();
  return reinterpret_cast<PyTypeObject*>(type);
}

}  // namespace

PyRef OwnAttribute(PyObject* object, PyObject* name) {
  const PyRef dict = PyRef::Steal(PyObject_GenericGetDict(object, nullptr));
  PyRef value =
      PyRef::Borrow(dict ? PyDict_GetItemWithError(dict.get(), name) : nullptr);  // else an error
  ClearError();
  if (!value) value = PyRef::Steal(PyObject_GetAttr(object, name));
  ClearError();
  return value;
}

std::vector<std::pair<PyRef, PyRef>> Items(const PyRef& mapping) {
  std::vector<std::pair<PyRef, PyRef>> items;
  PyObject *key, *value;
  if (mapping && PyDict_CheckExact(mapping.get())) {
    for (Py_ssize_t at = 0; PyDict_Next(mapping.get(), &at, &key, &value);)
      items.emplace_back(PyRef::Borrow(key), PyRef::Borrow(value));
    return items;
  }
  if (mapping &&
      PyODict_CheckExact(mapping.get())) {  // its order is its own: PyDict_Next has another
    const PyRef keys = PyRef::Steal(PyObject_GetIter(mapping.get()));
    while (PyRef next = keys ? PyRef::Steal(PyIter_Next(keys.get())) : PyRef()) {
      value = PyDict_GetItemWithError(mapping.get(), next.get());
      if (value != nullptr) items.emplace_back(std::move(next), PyRef::Borrow(value));
    }
    ClearError();
    return items;
  }
  const PyRef view =
      mapping ? PyRef::Steal(PyObject_CallMethod(mapping.get(), "items", nullptr)) : PyRef();
  const PyRef list = view ? PyRef::Steal(PySequence_List(view.get())) : PyRef();
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list.get()); ++i) {
    if (PyArg_ParseTuple(PyList_GET_ITEM(list.get(), i), "OO", &key, &value))
      items.emplace_back(PyRef::Borrow(key), PyRef::Borrow(value));
  }
  ClearError();
  return items;
}

bool Overrides(PyObject* module, PyObject* name) {
  PyTypeObject* const usual = UsualModule();
  if (usual == nullptr || _PyType_Lookup(Py_TYPE(module), name) != _PyType_Lookup(usual, name))
    return true;
  const PyRef dict = PyRef::Steal(PyObject_GenericGetDict(module, nullptr));
  const bool own = dict && PyDict_GetItemWithError(dict.get(), name) != nullptr;
  ClearError();
  return own;
}

}  // namespace msprobe::capture
