#include "capture/gradients/node_hooks.h"

#include <utility>

#include "capture/python/py_ref.h"

namespace msprobe::capture {
namespace {

PyTypeObject* our_hook_type = nullptr;
bool is_installed = false;  // setting an attribute of a type again would drop its look-up caches

// (dict of hooks or None, hook) -> (dict, handle), as _HookMixin._register_hook.
PyObject* RegisterHook(PyObject* original, PyObject* const* args, Py_ssize_t count) {
  if (count != 2 || Py_TYPE(args[1]) != our_hook_type)
    return PyObject_Vectorcall(original, args, static_cast<size_t>(count), nullptr);
  // An OrderedDict, because the RemovableHandle of another hook keeps a weak reference to it. The
  // keys of such handles are numbers; ours is the hook itself.
  PyRef hooks = args[0] == Py_None ? PyRef::Steal(PyODict_New()) : PyRef::Borrow(args[0]);
  if (!hooks || PyObject_SetItem(hooks.get(), args[1], args[1]) != 0) return nullptr;
  return PyTuple_Pack(2, hooks.get(), Py_None);
}

PyMethodDef method = {"_register_hook",
                      reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&RegisterHook)),
                      METH_FASTCALL, nullptr};

// The class that has the function, the original descriptor, and the function that replaces it.
struct Place {
  PyRef owner, descriptor, stand_in;
};

Place FindPlace() {
  Place place;
  PyRef module = PyRef::Steal(PyImport_ImportModule("torch.autograd.function"));
  if (module) place.owner = PyRef::Steal(PyObject_GetAttrString(module.get(), "_HookMixin"));
  if (place.owner && PyType_Check(place.owner.get())) {
    PyObject* dict = reinterpret_cast<PyTypeObject*>(place.owner.get())->tp_dict;
    place.descriptor = PyRef::Borrow(dict ? PyDict_GetItemString(dict, "_register_hook") : nullptr);
    PyRef original = PyRef::Steal(PyObject_GetAttrString(place.owner.get(), "_register_hook"));
    if (place.descriptor && original)
      place.stand_in = PyRef::Steal(PyCFunction_New(&method, original.get()));
  }
  ClearError();
  return place;
}

// Never destroyed: at exit the interpreter is gone before static destructors run.
const Place& ThePlace() {
  static const Place* place = new Place(FindPlace());
  return *place;
}

void Put(const PyRef& what) {
  const Place& place = ThePlace();
  if (place.stand_in &&
      PyObject_SetAttrString(place.owner.get(), "_register_hook", what.get()) != 0)
    ClearError();
}

}  // namespace

void NodeHooks::Install(PyTypeObject* ours) {
  our_hook_type = ours;
  if (!std::exchange(is_installed, true)) Put(ThePlace().stand_in);
}

void NodeHooks::Remove() {
  if (std::exchange(is_installed, false)) Put(ThePlace().descriptor);
}

bool NodeHooks::Add(PyObject* node, PyObject* hook, When when) {
  static PyObject* const names[] = {PyUnicode_InternFromString("register_prehook"),
                                    PyUnicode_InternFromString("register_hook")};
  const PyRef handle = PyRef::Steal(PyObject_CallMethodOneArg(node, names[when == kAfter], hook));
  ClearError();
  return static_cast<bool>(handle);
}

}  // namespace msprobe::capture
