#include "capture/calls/interpose_function.h"

#include <unordered_map>

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
  const CallArgs call{.positional = args, .count = PyVectorcall_NARGS(nargsf), .names = names};
  return self.observed_.Observe(
      call, [&] { return self.original_(self.stub_.Callee(f), args, nargsf, names); });
}

std::string ObservedFunction::Prepare(PyObject* function, const Api* api,
                                      Interposer::ApiOf api_of) {
  auto* f = reinterpret_cast<PyFunctionObject*>(function);
  if (reinterpret_cast<PyCodeObject*>(f->func_code)->co_flags &
      (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR))
    return "generators and coroutines are not observed";
  if (known.count(function) > 0) return "it is observed already";
  observed_ = {api, api_of};
  std::string reason = stub_.Prepare(function, observed_);
  if (!reason.empty()) return reason;
  function_ = PyRef::Borrow(function);
  original_ = f->vectorcall;
  known.emplace(function, this);
  return "";
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
