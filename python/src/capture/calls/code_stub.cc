#include "capture/calls/code_stub.h"

#include <utility>
#include <vector>

namespace msprobe::capture {
namespace {

// The constant in a stub. It has the API of the function, and a copy of the function that runs the
// original code.
struct Observer {
  PyObject_HEAD ObservedCalls calls;
  PyObject* twin;
};

PyTypeObject observer_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
std::vector<CodeStub*>& stubs = *new std::vector<CodeStub*>;  // never destroyed
// Interned by Init: every start and stop sets it on all functions.
PyObject* signature_name = nullptr;
bool are_wanted = true;  // whether stubs are in the functions that are observed
int readers = 0;         // how many StubsRemoved exist. The GIL guards all of these variables

bool FramesHaveOtherEvaluator() {
  return _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get()) != _PyEval_EvalFrameDefault;
}

// The call of a stub, `return OBSERVER(*args, **kwargs)`, which always passes a tuple and a dict.
PyObject* CallObserved(PyObject* self, PyObject* args, PyObject* kwargs) {
  const Observer* observer = reinterpret_cast<Observer*>(self);
  const CallArgs call{.positional = &PyTuple_GET_ITEM(args, 0),
                      .count = PyTuple_GET_SIZE(args),
                      .dict = kwargs,
                      .callable = observer->twin};
  return observer->calls.Observe(call, [&] {
    if (const Replacement* r = std::exchange(next_replacement, nullptr)) {
      return WithReplacement(*r, call, [&](PyObject** values, PyObject* keywords) {
        return PyObject_VectorcallDict(observer->twin, values, static_cast<size_t>(call.count),
                                       keywords);
      });
    }
    return PyObject_Call(observer->twin, args, kwargs);
  });
}

// def stub(*args, **kwargs): return "OBSERVER"(*args, **kwargs), compiled once.
PyRef StubTemplate() {
  static PyObject* code = [] {
    PyRef globals = PyRef::Steal(PyDict_New());
    PyDict_SetItemString(globals.get(), "__builtins__", PyEval_GetBuiltins());
    // The source calls a constant, in whose place each stub gets its observer. Python's compiler
    // warns of such a call.
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

// The template with our observer in place of the constant. Everything that tracebacks and warnings
// show (file, name, first line) is taken from the original.
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

// inspect.signature of the function, which the stub's code would change. Null when the function has
// __signature__ or __wrapped__, which tell the signature without the code.
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

// A copy of the function with the same name, defaults and closure cells.
PyRef TwinOf(PyObject* function) {
  auto* f = reinterpret_cast<PyFunctionObject*>(function);
  PyRef twin = PyRef::Steal(PyFunction_New(f->func_code, f->func_globals));
  const PyRef qualified = PyRef::Steal(PyObject_GetAttrString(function, "__qualname__"));
  if (twin &&
      ((f->func_defaults && PyFunction_SetDefaults(twin.get(), f->func_defaults) != 0) ||
       (f->func_kwdefaults && PyFunction_SetKwDefaults(twin.get(), f->func_kwdefaults) != 0) ||
       (f->func_closure && PyFunction_SetClosure(twin.get(), f->func_closure) != 0) ||
       (qualified && PyObject_SetAttrString(twin.get(), "__qualname__", qualified.get()) != 0))) {
    twin = PyRef();
  }
  return twin;
}

void DeallocObserver(PyObject* self) {
  Py_XDECREF(reinterpret_cast<Observer*>(self)->twin);
  PyObject_Free(self);
}

}  // namespace

Message CodeStub::Prepare(PyObject* function, const ObservedCalls& calls) {
  if (!kNeeded) return {};
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  PyRef twin = TwinOf(function);
  Observer* made = twin ? PyObject_New(Observer, &observer_type) : nullptr;
  if (made == nullptr) {
    ClearError();
    return "its function object could not be copied"_t;
  }
  made->calls = calls;
  made->twin = Py_NewRef(twin.get());
  const PyRef observer = PyRef::Steal(reinterpret_cast<PyObject*>(made));
  PyRef stub = MakeStub(code, observer.get());
  if (!stub) {
    ClearError();
    return "no stub could be made for its code"_t;
  }
  signature_ = SignatureOf(function);
  function_ = PyRef::Borrow(function);
  twin_ = std::move(twin);
  code_ = PyRef::Borrow(reinterpret_cast<PyObject*>(code));
  stub_ = std::move(stub);
  stubs.push_back(this);
  return {};
}

PyObject* CodeStub::Callee(PyObject* function) const {
  return kNeeded && PyFunction_GET_CODE(function) == stub_.get() ? twin_.get() : function;
}

void CodeStub::Place(bool wanted) {
#if PY_VERSION_HEX >= 0x030b0000
  auto* f = reinterpret_cast<PyFunctionObject*>(function_.get());
  PyObject* const from = wanted ? code_.get() : stub_.get();
  if (f->func_code != from) return;  // already done, or the program has set another code
  // Not through the attribute `__code__`, which is slow: compiled code calls this at each call.
  f->func_code = Py_NewRef(wanted ? stub_.get() : code_.get());
  f->func_version = 0;
  Py_DECREF(from);
#else
  (void)wanted;
#endif
}

void CodeStub::Install() {
  if (!kNeeded || !function_) return;  // not prepared: the function needs no stub
  FollowEvaluator();
  is_installed_ = true;
  if (signature_ && PyObject_SetAttr(function_.get(), signature_name, signature_.get()) != 0)
    ClearError();
  Place(are_wanted);
}

void CodeStub::Remove() {
  if (!kNeeded || !std::exchange(is_installed_, false)) return;
  if (signature_ && PyObject_DelAttr(function_.get(), signature_name) != 0) ClearError();
  Place(false);
}

void CodeStub::FollowEvaluator() {
  if (!kNeeded) return;
  const bool wanted = readers == 0 && !FramesHaveOtherEvaluator();
  if (std::exchange(are_wanted, wanted) == wanted) return;
  for (CodeStub* stub : stubs) {
    if (stub->is_installed_) stub->Place(wanted);
  }
}

CodeStub::StubsRemoved::StubsRemoved() {
  ++readers;
  FollowEvaluator();
}

CodeStub::StubsRemoved::~StubsRemoved() {
  --readers;
  FollowEvaluator();
}

bool CodeStub::Init() {
  signature_name = PyUnicode_InternFromString("__signature__");
  observer_type.tp_name = "msprobe._engine.FunctionObserver";
  observer_type.tp_basicsize = sizeof(Observer);
  observer_type.tp_flags = Py_TPFLAGS_DEFAULT;
  observer_type.tp_call = CallObserved;
  observer_type.tp_dealloc = DeallocObserver;
  return PyType_Ready(&observer_type) == 0;
}

void CodeStub::ForEach(void (*visit)(PyObject* code, void* context), void* context) {
  for (const CodeStub* stub : stubs) visit(stub->stub_.get(), context);
}

}  // namespace msprobe::capture
