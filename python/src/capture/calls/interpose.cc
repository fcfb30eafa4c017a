#include "capture/calls/interpose.h"

#include <array>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/calls/interpose_function.h"
#include "capture/calls/module_calls.h"
#include "capture/calls/optimizer_calls.h"
#include "capture/python/py_ref.h"
#include "capture/python/torch_api.h"

namespace msprobe::capture {
namespace {

constexpr int kMaxMethods = 1024;  // torch.Tensor has about 700
constexpr int kMaxSlots = 16;

CallObserver* observer = nullptr;

struct Builtin {
  const Api* api;
  vectorcallfunc original;
  // The interpreter calls functions of one argument directly, past the pointer, because of their
  // flags. While such a function is observed it has a PyMethodDef of our own, which differs only in
  // the flags.
  PyMethodDef *def = nullptr, *own_def = nullptr;
};
using BuiltinMap = std::unordered_map<PyObject*, Builtin>;
struct Method {
  PyMethodDef* def;
  PyCFunction original;
  const Api* api;                      // null: `api_of` tells
  PyObject* descriptor;                // owned
  Interposer::ApiOf api_of = nullptr;  // of a method of classes: maps the class to the API
};
// A slot of a type, and all types that have inherited its pointer.
struct Slot {
  objobjargproc original;
  const Api* api;
  PyObject* callable;  // owned
  std::vector<PyTypeObject*> types;
};

BuiltinMap& builtins = *new BuiltinMap;
// The same pointers in one array, which every start and stop walks over.
std::vector<BuiltinMap::value_type*>& builtin_row = *new std::vector<BuiltinMap::value_type*>;
std::array<Method, kMaxMethods> methods;
int method_count = 0;
Slot setitem;
// Never destroyed: at exit the interpreter is gone before static destructors run.
std::deque<ObservedFunction>& functions = *new std::deque<ObservedFunction>;
bool is_installed = false;

PyObject* CallBuiltin(PyObject* f, PyObject* const* args, size_t nargsf, PyObject* names) {
  const Builtin& b = builtins.find(f)->second;
  const CallArgs call{
      .positional = args, .count = PyVectorcall_NARGS(nargsf), .names = names, .callable = f};
  return Observe(*b.api, call, [&]() -> PyObject* {
    if (b.original != nullptr) return b.original(f, args, nargsf, names);
    // METH_VARARGS | METH_KEYWORDS functions have no vectorcall: tp_call calls ml_meth, which is
    // not changed.
    PyRef tuple = PyRef::Steal(PyTuple_New(call.count));
    if (!tuple) return nullptr;
    for (Py_ssize_t i = 0; i < call.count; ++i)
      PyTuple_SET_ITEM(tuple.get(), i, Py_NewRef(args[i]));
    PyRef dict;
    if (names != nullptr && PyTuple_GET_SIZE(names) > 0) {
      dict = PyRef::Steal(PyDict_New());
      if (!dict) return nullptr;
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
        if (PyDict_SetItem(dict.get(), PyTuple_GET_ITEM(names, i), args[call.count + i]) != 0)
          return nullptr;
      }
    }
    return Py_TYPE(f)->tp_call(f, tuple.get(), dict.get());
  });
}

// A method of classes, `apply` of torch.autograd.Function: the class says which API is called, and
// is not recorded.
[[gnu::noinline]] PyObject* ObserveOfClass(PyObject* type, PyObject* args, PyObject* kwargs,
                                           const Method& m) {
  auto original = [&] {
    return reinterpret_cast<PyCFunctionWithKeywords>(reinterpret_cast<void*>(m.original))(
        type, args, kwargs);
  };
  const Api* api = m.api_of(type);
  if (api == nullptr) return original();
  const CallArgs call{.positional = &PyTuple_GET_ITEM(args, 0),
                      .count = PyTuple_GET_SIZE(args),
                      .dict = kwargs,
                      .callable = type};
  return Observe(*api, call, original);
}

[[gnu::noinline]] PyObject* ObserveWithKeywords(PyObject* self, PyObject* args, PyObject* kwargs,
                                                const Method& m) {
  if (m.api == nullptr) return ObserveOfClass(self, args, kwargs, m);
  const CallArgs call{.self = self,
                      .positional = &PyTuple_GET_ITEM(args, 0),
                      .count = PyTuple_GET_SIZE(args),
                      .dict = kwargs,
                      .callable = m.descriptor};
  return Observe(*m.api, call, [&] {
    return reinterpret_cast<PyCFunctionWithKeywords>(reinterpret_cast<void*>(m.original))(
        self, args, kwargs);
  });
}

[[gnu::noinline]] PyObject* ObserveVarargs(PyObject* self, PyObject* args, const Method& m) {
  const CallArgs call{.self = self,
                      .positional = &PyTuple_GET_ITEM(args, 0),
                      .count = PyTuple_GET_SIZE(args),
                      .callable = m.descriptor};
  return Observe(*m.api, call, [&] { return m.original(self, args); });
}

// For METH_O, and for METH_NOARGS with a null argument.
[[gnu::noinline]] PyObject* ObserveOneOrNone(PyObject* self, PyObject* arg, const Method& m) {
  const CallArgs call{
      .self = self, .positional = &arg, .count = arg == nullptr ? 0 : 1, .callable = m.descriptor};
  return Observe(*m.api, call, [&] { return m.original(self, arg); });
}

// ml_meth does not get the method that is called, so each method needs entry points of its own: two
// instructions that add the method's number to the arguments and jump to the common code. (3 x 1024
// copies of the common code would take 25 s to compile.)
template <int I>
PyObject* CallWithKeywords(PyObject* self, PyObject* args, PyObject* kwargs) {
  return ObserveWithKeywords(self, args, kwargs, methods[I]);
}
template <int I>
PyObject* CallVarargs(PyObject* self, PyObject* args) {
  return ObserveVarargs(self, args, methods[I]);
}
template <int I>
PyObject* CallOneOrNone(PyObject* self, PyObject* arg) {
  return ObserveOneOrNone(self, arg, methods[I]);
}

// The entry points of each method.
struct EntryPoints {
  PyCFunctionWithKeywords with_keywords;
  PyCFunction varargs, one_or_none;
};
template <int... I>
constexpr std::array<EntryPoints, kMaxMethods> MakeEntryPoints(std::integer_sequence<int, I...>) {
  return {EntryPoints{CallWithKeywords<I>, CallVarargs<I>, CallOneOrNone<I>}...};
}
constexpr std::array<EntryPoints, kMaxMethods> entry_points =
    MakeEntryPoints(std::make_integer_sequence<int, kMaxMethods>{});

int CallSetItem(PyObject* self, PyObject* key, PyObject* value) {
  if (value == nullptr) return setitem.original(self, key, value);  // del x[i]
  PyObject* args[] = {key, value};
  const CallArgs call{.self = self, .positional = args, .count = 2, .callable = setitem.callable};
  const PyRef result = PyRef::Steal(Observe(*setitem.api, call, [&]() -> PyObject* {
    return setitem.original(self, key, value) == 0 ? Py_NewRef(Py_None) : nullptr;
  }));
  return result ? 0 : -1;
}

PyCFunction EntryPoint(const PyMethodDef* def, int index) {
  const EntryPoints& entry = entry_points[static_cast<size_t>(index)];
  switch (def->ml_flags & ~(METH_COEXIST | METH_CLASS)) {
    case METH_VARARGS | METH_KEYWORDS:
      return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(entry.with_keywords));
    case METH_VARARGS:
      return entry.varargs;
    case METH_O:
    case METH_NOARGS:
      return entry.one_or_none;
    default:
      return nullptr;
  }
}

Message AddMethod(PyObject* callable, const Api* api, Interposer::ApiOf api_of = nullptr) {
  PyMethodDef* def = reinterpret_cast<PyMethodDescrObject*>(callable)->d_method;
  for (int i = 0; i < method_count; ++i) {
    if (methods[i].def == def) return {};
  }
  if (method_count == kMaxMethods) return "too many methods are listed (1024 at most)"_t;
  if (EntryPoint(def, method_count) == nullptr)
    return "calling convention {} is not known"_t(def->ml_flags);
  methods[method_count++] = {def, def->ml_meth, api, Py_NewRef(callable), api_of};
  return {};
}

void CollectTypes(PyTypeObject* type, objobjargproc original, std::vector<PyTypeObject*>* types) {
  if (type->tp_as_mapping != nullptr && type->tp_as_mapping->mp_ass_subscript == original)
    types->push_back(type);
  // Most have none, and to ask each of them takes longer than the rest of a start.
  if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && type->tp_subclasses == nullptr) return;
  PyRef subclasses = PyRef::Steal(
      PyObject_CallMethod(reinterpret_cast<PyObject*>(type), "__subclasses__", nullptr));
  if (!subclasses || !PyList_Check(subclasses.get())) {
    ClearError();
    return;
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(subclasses.get()); ++i) {
    CollectTypes(reinterpret_cast<PyTypeObject*>(PyList_GET_ITEM(subclasses.get(), i)), original,
                 types);
  }
}

Message AddSlot(PyObject* callable, PyObject* name, const Api* api) {
  if (Utf8(name) != "__setitem__") return "slot wrappers other than __setitem__ are not observed"_t;
  PyTypeObject* owner = reinterpret_cast<PyWrapperDescrObject*>(callable)->d_common.d_type;
  if (owner->tp_as_mapping == nullptr || owner->tp_as_mapping->mp_ass_subscript == nullptr)
    return "its type has no such slot"_t;
  if (setitem.api == nullptr)
    setitem = {owner->tp_as_mapping->mp_ass_subscript, api, Py_NewRef(callable), {owner}};
  return {};
}

Message AddFunction(PyObject* function, const Api* api, Interposer::ApiOf api_of) {
  for (const ObservedFunction& f : functions) {
    if (f.function() == function) return {};
  }
  Message reason = functions.emplace_back().Prepare(function, api, api_of);
  if (!reason.empty()) {
    functions.pop_back();
  } else if (is_installed) {
    functions.back().Install();  // a function of a compiler that was imported just now
  }
  return reason;
}

// Sets every pointer to the value that the two functions return for it. The objects, and what is
// known of them, lie scattered in memory that a training step has pushed out of the caches, so the
// next ones are prefetched.
template <typename F, typename M>
void ForEachPointer(F&& function, M&& method) {
  constexpr size_t kAhead = 8;
  const size_t count = static_cast<size_t>(method_count);
  for (size_t i = 0; i < builtin_row.size(); ++i) {
    if (i + 2 * kAhead < builtin_row.size()) __builtin_prefetch(builtin_row[i + 2 * kAhead]);
    if (i + kAhead < builtin_row.size()) __builtin_prefetch(builtin_row[i + kAhead]->first, 1);
    auto& [object, b] = *builtin_row[i];
    auto* const f = reinterpret_cast<PyCFunctionObject*>(object);
    f->vectorcall = function(b);
    if (b.def != nullptr) f->m_ml = f->vectorcall == b.original ? b.def : b.own_def;
  }
  for (size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) __builtin_prefetch(methods[i + kAhead].def, 1);
    methods[i].def->ml_meth = method(methods[i], static_cast<int>(i));
  }
}

PyObject* before_compiling = nullptr;  // owned; null after it was called

void TellOfCompiler() {
  compilers_seen = true;
  const PyRef callable = PyRef::Steal(std::exchange(before_compiling, nullptr));
  if (!callable) return;
  const KeepError keep;
  const Interposer::Pause pause;
  const PyRef done = PyRef::Steal(PyObject_CallNoArgs(callable.get()));
  ClearError();
}

}  // namespace

namespace {

// What a method of the storage that a kResizer gets says: "nbytes".
uint64_t AskStorage(const CallArgs& call, const char* method) {
  PyObject* storage = call.self != nullptr ? call.self
                      : call.count > 0     ? call.positional[0]
                                           : nullptr;
  const KeepError keep;
  const PyRef bytes =
      storage ? PyRef::Steal(PyObject_CallMethod(storage, method, nullptr)) : PyRef();
  const uint64_t found = bytes ? PyLong_AsUnsignedLongLong(bytes.get()) : 0;
  if (PyErr_Occurred() == nullptr) return found;
  ClearError();
  return 0;
}

bool IsOutermost() { return listed_depth == 0 && call_place.compilers == 0; }

// The Function that torch.func is passing from level to level: at each level it calls apply()
// again. These calls are not the program's.
thread_local const Api* passed_on = nullptr;

PyObject* ObserveFunction(const Api& api, const CallArgs& call, PyObject* (*original)(void*),
                          void* context) {
  if (call_place.compilers > 0) ++traced_calls;
  if (!IsOutermost() || observer == nullptr || passed_on == &api) return original(context);
  ModuleCalls::Repair();
  CallObserver* const entered = observer;  // another thread may stop while the call runs
  void* token = nullptr;
  {
    const Interposer::Pause pause;
    token = entered->Enter(api, call);
  }
  const Api* const before = std::exchange(passed_on, TransformsAreActive() ? &api : nullptr);
  PyObject* result = original(context);
  passed_on = before;
  if (token != nullptr) {
    const Interposer::Pause pause;
    entered->Leave(token, call, result);
  }
  return result;
}

}  // namespace

PyObject* ObserveCall(const Api& api, const CallArgs& call, PyObject* (*original)(void*),
                      void* context) {
  if (api.off) return original(context);
  if (api.kind == Api::kOptimizer)
    return OptimizerCalls::Observe(static_cast<const OptimizerApi&>(api), call, original, context);
  if (api.kind == Api::kCompiler) {
    TellOfCompiler();
    struct Tracing {
      Tracing() { ++call_place.compilers; }
      ~Tracing() { --call_place.compilers; }
      const CodeStub::StubsRemoved away;
    } guard;
    return original(context);
  }
  if (api.kind == Api::kEvaluator) {
    TellOfCompiler();
    PyObject* result = original(context);
    CodeStub::FollowEvaluator();
    return result;
  }
  if (api.kind == Api::kConverter) {
    const PlaceScope inside(Place::kIgnored);
    struct Listed {
      Listed() { ++listed_depth, ++call_place.converters; }
      ~Listed() { --listed_depth, --call_place.converters; }
    } guard;
    return original(context);
  }
  if (api.kind == Api::kFunction) return ObserveFunction(api, call, original, context);
  if (api.kind != Api::kCall) {
    CallArgs seen = call;
    if (api.kind == Api::kResizer) {
      seen.bytes_before = AskStorage(call, "nbytes");
      seen.address_before = AskStorage(call, "data_ptr");
    }
    PyObject* result = original(context);
    const bool allocates = api.kind == Api::kAllocator || api.kind == Api::kResizer;
    if (api.kind == Api::kPatcher) {
      ModuleCalls::Repair();
    } else if (observer != nullptr && (!allocates || IsOutermost())) {
      observer->OnWatchedCall(api, seen, result);
    }
    return result;
  }
  if (call_place.compilers > 0) {
    ++traced_calls;
    return original(context);
  }
  struct Depth {
    Depth() { ++listed_depth; }
    ~Depth() { --listed_depth; }
  } guard;
  if (listed_depth > 1 || observer == nullptr) {
    nested_calls += call_place.place == Place::kRecorded;
    nested_collectives += api.collective != nullptr;
    return original(context);
  }
  ModuleCalls::Repair();
  const PlaceScope ours(Place::kOurs);
  CallObserver* const entered = observer;   // another thread may stop while the call runs
  void* token = entered->Enter(api, call);  // sets call_place
  call_place.fresh = true;
  PyObject* result = original(context);
  call_place.place = Place::kOurs;
  if (token != nullptr) entered->Leave(token, call, result);
  return result;
}

Message Interposer::Add(PyObject* owner, PyObject* name, PyObject* callable, const Api* api) {
  (void)owner;
  // Methods of pybind11's classes. They are called through bound methods, which the interpreter
  // never calls past the pointer.
  const bool is_bound = PyInstanceMethod_Check(callable);
  if (is_bound) callable = PyInstanceMethod_GET_FUNCTION(callable);
  if (PyCFunction_CheckExact(callable)) {
    auto* function = reinterpret_cast<PyCFunctionObject*>(callable);
    const int flags = function->m_ml->ml_flags & ~(METH_CLASS | METH_STATIC | METH_COEXIST);
    // The interpreter calls functions with fast-call flags past the pointer that is swapped.
    if (flags != (METH_VARARGS | METH_KEYWORDS) && flags != METH_VARARGS && flags != METH_O &&
        !(is_bound && flags == (METH_FASTCALL | METH_KEYWORDS)))
      return "calling convention {} is not known"_t(flags);
    const auto [it, inserted] = builtins.try_emplace(callable, Builtin{api, function->vectorcall});
    if (inserted) {
      Py_INCREF(callable);
      if (flags == METH_O) {
        it->second.def = function->m_ml;
        it->second.own_def = new PyMethodDef(*function->m_ml);
        it->second.own_def->ml_flags ^= METH_O | METH_VARARGS | METH_KEYWORDS;
      }
      builtin_row.push_back(&*it);
    }
    return {};
  }
  if (Py_TYPE(callable) == &PyMethodDescr_Type) return AddMethod(callable, api);
  if (Py_TYPE(callable) == &PyWrapperDescr_Type) return AddSlot(callable, name, api);
  if (PyFunction_Check(callable)) {
    return AddFunction(callable, api, nullptr);
  }
  return "objects of type {} are not observed"_t(std::string(Py_TYPE(callable)->tp_name));
}

Message Interposer::AddDispatch(PyObject* function, ApiOf api_of) {
  if (Py_TYPE(function) == &PyClassMethodDescr_Type) {
    const int flags = reinterpret_cast<PyMethodDescrObject*>(function)->d_method->ml_flags;
    if ((flags & ~METH_COEXIST) != (METH_CLASS | METH_VARARGS | METH_KEYWORDS))
      return "calling convention {} is not known"_t(flags);
    return AddMethod(function, nullptr, api_of);
  }
  if (!PyFunction_Check(function))
    return "objects of type {} are not observed"_t(std::string(Py_TYPE(function)->tp_name));
  return AddFunction(function, nullptr, api_of);
}

const Api* Interposer::Find(PyObject* callable) {
  if (const auto it = builtins.find(callable); it != builtins.end()) return it->second.api;
  for (int i = 0; i < method_count && Py_TYPE(callable) == &PyMethodDescr_Type; ++i) {
    if (methods[i].def == reinterpret_cast<PyMethodDescrObject*>(callable)->d_method)
      return methods[i].api;
  }
  for (const ObservedFunction& f : functions) {
    if (f.function() == callable) return f.api();
  }
  return nullptr;
}

void Interposer::Install(CallObserver* new_observer) {
  observer = new_observer;
  if (std::exchange(is_installed, true)) return;
  ForEachPointer([](const Builtin&) { return CallBuiltin; },
                 [](const Method& m, int i) { return EntryPoint(m.def, i); });
  if (setitem.api != nullptr) {
    PyTypeObject* owner = setitem.types.front();
    setitem.types.clear();
    CollectTypes(owner, setitem.original, &setitem.types);  // there may be new subclasses
    for (PyTypeObject* type : setitem.types) type->tp_as_mapping->mp_ass_subscript = CallSetItem;
  }
  for (ObservedFunction& f : functions) f.Install();
}

void Interposer::Remove() {
  if (!std::exchange(is_installed, false)) return;
  ForEachPointer([](const Builtin& b) { return b.original; },
                 [](const Method& m, int) { return m.original; });
  if (setitem.api != nullptr) {
    PyTypeObject* owner = setitem.types.front();
    // Types that were created while we were installed have inherited our pointer.
    std::vector<PyTypeObject*> types;
    CollectTypes(owner, CallSetItem, &types);
    for (PyTypeObject* type : types) type->tp_as_mapping->mp_ass_subscript = setitem.original;
    setitem.types = {owner};
  }
  for (ObservedFunction& f : functions) f.Remove();
  observer = nullptr;
}

bool Interposer::installed() { return is_installed; }

void Interposer::BeforeCompiling(PyObject* callable) {
  Py_XDECREF(std::exchange(before_compiling, Py_NewRef(callable)));
}

Interposer::Pause::Pause() : place_(Place::kOurs) { ++listed_depth; }
Interposer::Pause::~Pause() { --listed_depth; }

bool Interposer::Init() { return CodeStub::Init(); }

}  // namespace msprobe::capture
