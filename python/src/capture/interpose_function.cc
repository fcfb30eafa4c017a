#include "capture/interpose_function.h"

#include <vector>

namespace msprobe::capture {
namespace {

// The constant in a stub: knows the api and a twin of the function that runs the original code.
struct Observer {
  PyObject_HEAD const Api* api;
  PyObject* original;
  Interposer::ApiOf api_of;  // null: `api` is known
};

PyTypeObject observer_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
std::vector<PyObject*>* stubs = nullptr;
// Interned by Init: every start and stop sets them on all functions.
struct {
  PyObject *code, *signature;
} names;

// The stub is `return OBSERVER(*args, **kwargs)`: always a tuple and a dict.
PyObject* CallObserved(PyObject* self, PyObject* args, PyObject* kwargs) {
  const Observer* observer = reinterpret_cast<Observer*>(self);
  if (observer->api_of != nullptr) {
    const Py_ssize_t count = PyTuple_GET_SIZE(args);
    const Api* api = count > 0 ? observer->api_of(PyTuple_GET_ITEM(args, 0)) : nullptr;
    auto original = [&] { return PyObject_Call(observer->original, args, kwargs); };
    if (api == nullptr) return original();
    const CallArgs call{
        .positional = &PyTuple_GET_ITEM(args, 0) + 1, .count = count - 1, .dict = kwargs};
    return Observe(*api, call, original);
  }
  const CallArgs call{
      .positional = &PyTuple_GET_ITEM(args, 0), .count = PyTuple_GET_SIZE(args), .dict = kwargs};
  return Observe(*observer->api, call,
                 [&] { return PyObject_Call(observer->original, args, kwargs); });
}

// def stub(*args, **kwargs): return "OBSERVER"(*args, **kwargs), compiled once.
PyRef StubTemplate() {
  static PyObject* code = [] {
    PyRef globals = PyRef::Steal(PyDict_New());
    PyDict_SetItemString(globals.get(), "__builtins__", PyEval_GetBuiltins());
    // Called through a name, then renamed to a constant below: the compiler warns of calling a
    // constant.
    PyRef done = PyRef::Steal(PyRun_String(
        "import warnings\nwith warnings.catch_warnings():\n    warnings.simplefilter('ignore')\n"
        "    exec(\"def stub(*args, **kwargs): return 'OBSERVER'(*args, **kwargs)\")\n",
        Py_file_input, globals.get(), globals.get()));
    PyObject* stub = done ? PyDict_GetItemString(globals.get(), "stub") : nullptr;
    if (stub == nullptr) ClearError();
    return stub ? PyObject_GetAttrString(stub, "__code__") : nullptr;
  }();
  return PyRef::Borrow(code);
}

// The template with our observer in place of the constant, and what tracebacks and warnings show
// taken from the original.
PyRef MakeStub(PyCodeObject* original, PyObject* observer) {
  PyRef code = StubTemplate();
  if (!code) return PyRef();
  PyRef constants = PyRef::Steal(PyObject_GetAttrString(code.get(), "co_consts"));
  if (!constants) return PyRef();
  PyRef replaced = PyRef::Steal(PyTuple_New(PyTuple_GET_SIZE(constants.get())));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(constants.get()); ++i) {
    PyObject* constant = PyTuple_GET_ITEM(constants.get(), i);
    const bool ours = PyUnicode_Check(constant) && Utf8(constant) == "OBSERVER";
    PyTuple_SET_ITEM(replaced.get(), i, Py_NewRef(ours ? observer : constant));
  }
  PyRef free_variables =
      PyRef::Steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(original), "co_freevars"));
  PyRef replace = PyRef::Steal(PyObject_GetAttrString(code.get(), "replace"));
  PyRef no_args = PyRef::Steal(PyTuple_New(0));
  PyRef changes = free_variables
                      ? PyRef::Steal(Py_BuildValue(
                            "{sOsOsOsOsi}", "co_consts", replaced.get(), "co_freevars",
                            free_variables.get(), "co_name", original->co_name, "co_filename",
                            original->co_filename, "co_firstlineno", original->co_firstlineno))
                      : PyRef();
  return replace && changes
             ? PyRef::Steal(PyObject_Call(replace.get(), no_args.get(), changes.get()))
             : PyRef();
}

// inspect.signature of the function, which the stub's code would hide; null where the function
// says itself what its signature is (__signature__, or __wrapped__).
PyRef SignatureOf(PyObject* function) {
  PyRef signature;
  if (!PyObject_HasAttrString(function, "__signature__") &&
      !PyObject_HasAttrString(function, "__wrapped__")) {
    const PyRef inspect = PyRef::Steal(PyImport_ImportModule("inspect"));
    if (inspect)
      signature = PyRef::Steal(PyObject_CallMethod(inspect.get(), "signature", "O", function));
  }
  ClearError();
  return signature;
}

void DeallocObserver(PyObject* self) {
  Py_XDECREF(reinterpret_cast<Observer*>(self)->original);
  PyObject_Free(self);
}

}  // namespace

std::string ObservedFunction::Prepare(PyObject* function, const Api* api,
                                      Interposer::ApiOf api_of) {
  auto* f = reinterpret_cast<PyFunctionObject*>(function);
  auto* code = reinterpret_cast<PyCodeObject*>(f->func_code);
  if (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR))
    return "generators and coroutines are not observed";
  PyRef twin = PyRef::Steal(PyFunction_New(f->func_code, f->func_globals));
  if (twin) {
    // What the twin shares with the function: name, defaults and the closure's cells.
    const PyRef qualified = PyRef::Steal(PyObject_GetAttrString(function, "__qualname__"));
    if ((f->func_defaults && PyFunction_SetDefaults(twin.get(), f->func_defaults) != 0) ||
        (f->func_kwdefaults && PyFunction_SetKwDefaults(twin.get(), f->func_kwdefaults) != 0) ||
        (f->func_closure && PyFunction_SetClosure(twin.get(), f->func_closure) != 0) ||
        (qualified && PyObject_SetAttrString(twin.get(), "__qualname__", qualified.get()) != 0)) {
      twin = PyRef();
    }
  }
  Observer* observer = twin ? PyObject_New(Observer, &observer_type) : nullptr;
  if (observer == nullptr) {
    ClearError();
    return "its function object could not be copied";
  }
  api_ = observer->api = api;
  observer->api_of = api_of;
  observer->original = twin.release();
  const PyRef owned = PyRef::Steal(reinterpret_cast<PyObject*>(observer));
  stub_ = MakeStub(code, owned.get());
  if (!stub_) {
    ClearError();
    return "no stub could be made for its code";
  }
  signature_ = SignatureOf(function);
  stubs->push_back(stub_.get());
  code_ = PyRef::Borrow(f->func_code);
  function_ = PyRef::Borrow(function);
  return "";
}

void ObservedFunction::Install() {
  if (released_) return;
  if (signature_ && PyObject_SetAttr(function_.get(), names.signature, signature_.get()) != 0)
    ClearError();
  if (PyObject_SetAttr(function_.get(), names.code, stub_.get()) != 0) ClearError();
}

void ObservedFunction::Remove() {
  if (released_) return;
  if (signature_ && PyObject_DelAttr(function_.get(), names.signature) != 0) ClearError();
  if (PyObject_SetAttr(function_.get(), names.code, code_.get()) != 0) ClearError();
}

void ObservedFunction::Release(bool installed) {
  if (installed) Remove();
  released_ = true;
}

bool ObservedFunction::Init() {
  stubs = new std::vector<PyObject*>;
  names = {PyUnicode_InternFromString("__code__"), PyUnicode_InternFromString("__signature__")};
  observer_type.tp_name = "msprobe._engine.FunctionObserver";
  observer_type.tp_basicsize = sizeof(Observer);
  observer_type.tp_flags = Py_TPFLAGS_DEFAULT;
  observer_type.tp_call = CallObserved;
  observer_type.tp_dealloc = DeallocObserver;
  return PyType_Ready(&observer_type) == 0;
}

void ObservedFunction::ForEachStub(void (*visit)(PyObject* code, void* context), void* context) {
  for (PyObject* stub : *stubs) visit(stub, context);
}

}  // namespace msprobe::capture
