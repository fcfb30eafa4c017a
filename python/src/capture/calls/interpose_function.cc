#include "capture/calls/interpose_function.h"

#include <unordered_map>
#include <utility>

namespace msprobe::capture {
namespace {

// Function -> how it is observed. Never destroyed: at exit the interpreter is gone before static
// destructors run.
std::unordered_map<PyObject*, const ObservedFunction*>& known =
    *new std::unordered_map<PyObject*, const ObservedFunction*>;

void SetPointer(PyFunctionObject* f, vectorcallfunc pointer) {
  // Call sites that the interpreter has specialised check the function's version: a new version
  // makes them use the pointer.
#if PY_VERSION_HEX >= 0x030c0000
  PyFunction_SetVectorcall(f, pointer);
#else
#if PY_VERSION_HEX >= 0x030b0000
  f->func_version = 0;
#endif
  f->vectorcall = pointer;
#endif
}

}  // namespace

PyObject* ObservedFunction::Call(PyObject* f, PyObject* const* args, size_t nargsf,
                                 PyObject* names) {
  const ObservedFunction& self = *known.find(f)->second;
  const CallArgs call{
      .positional = args, .count = PyVectorcall_NARGS(nargsf), .names = names, .callable = f};
  return self.observed_.Observe(call, [&] {
    PyObject* const callee = self.stub_.Callee(f);
    if (const Replacement* r = std::exchange(next_replacement, nullptr)) {
      return WithReplacement(*r, call, [&](PyObject** values, PyObject*) {
        return self.original_(callee, values, static_cast<size_t>(call.count), names);
      });
    }
    return self.original_(callee, args, nargsf, names);
  });
}

Message ObservedFunction::Check(PyObject* function) const {
  if (reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function))->co_flags &
      (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR))
    return "generators and coroutines are not observed"_t;
  return known.count(function) > 0 ? "it is observed already"_t : Message();
}

void ObservedFunction::Know(PyObject* function) {
  function_ = PyRef::Borrow(function);
  original_ = reinterpret_cast<PyFunctionObject*>(function)->vectorcall;
  known.emplace(function, this);
}

Message ObservedFunction::Prepare(PyObject* function, const Api* api, Interposer::ApiOf api_of) {
  Message reason = Check(function);
  if (!reason.empty()) return reason;
  observed_ = {api, api_of};
  reason = stub_.Prepare(function, observed_);
  if (reason.empty()) Know(function);
  return reason;
}

Message ObservedFunction::PrepareDecorated(PyObject* function, const Api* api) {
  Message reason = Check(function);
  if (!reason.empty()) return reason;
  observed_ = {api, nullptr};
  Know(function);
  return reason;
}

void ObservedFunction::Install() {
  auto* f = reinterpret_cast<PyFunctionObject*>(function_.get());
  if (f->vectorcall != Call) original_ = f->vectorcall;
  SetPointer(f, Call);
  stub_.Install();
}

void ObservedFunction::Remove() {
  auto* f = reinterpret_cast<PyFunctionObject*>(function_.get());
  if (f->vectorcall == Call) SetPointer(f, original_);
  stub_.Remove();
}

}  // namespace msprobe::capture
