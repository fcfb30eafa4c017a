// Sees every call of a listed function or method without replacing any object: Python keeps, inside
// each callable, the pointer that is called, and that pointer is swapped in place. Identity, hash,
// equality, signature and every alias stay; nobody who holds the function needs to be told. Stop
// restores every pointer.
//
//   builtin (torch.add, F.gelu)             PyCFunctionObject::vectorcall; never its ml_meth,
//                                           which hash and == use
//   method (Tensor.add_, __add__)           PyMethodDef::ml_meth
//   Python function (F.relu)                PyFunctionObject::vectorcall (and code_stub.h)
//   method of a pybind11 class (Work.wait)  the vectorcall of the builtin inside
//   slot wrapper (Tensor.__setitem__)       the types' slot
//
// In use:
//
//   // "" or why it cannot be observed.
//   std::string why = Interposer::Add(owner, name, function, &api);
//   Interposer::Install(&observer);
//   Train();
//   Interposer::Remove();
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <string>

#include "capture/calls/call_place.h"
#include "engine/formats/ignore_rules.h"

namespace msprobe::capture {

class CollectiveSignature;

// One listed name, or a function by which the program learns that results are final. `recorded`
// and `ignored` may change between recordings.
struct Api {
  enum Kind {
    kCall,       // recorded, when it is the outermost one
    kWait,       // its first argument is complete when it returns
    kPoll,       // the same when it returns True
    kHandOn,     // hands its second argument to its first: work of calls that were put together
    kCompiler,   // traces: what it calls is no step of the program; reads Python functions' code
    kEvaluator,  // decides who evaluates frames, as torch.compile does
    kPatcher,    // resets the pointers of module calls (module_calls.h)
  };
  std::string prefix;                // "Functional"
  std::string stem;                  // "Functional.linear.": what entry names begin with
  uint32_t counter = 0;              // index of the call counter; names that print alike share one
  bool output_is_arguments = false;  // collectives: results are written into the arguments
  std::shared_ptr<const CollectiveSignature> collective;  // null: no call of torch.distributed
  Kind kind = kCall;
  bool recorded = true;                          // false: left out by the risk level, only counted
  const formats::IgnoreRule* ignored = nullptr;  // its values that are left out
  bool off = false;  // registered by the program, and restored: calls go straight through
};

// The arguments of one call, as they came. Exactly one of the two forms of keywords is used.
struct CallArgs {
  PyObject* self = nullptr;  // methods; null otherwise
  PyObject* const* positional = nullptr;
  Py_ssize_t count = 0;
  PyObject* dict = nullptr;  // keywords as a dict, or
  PyObject* names =
      nullptr;  // keywords as a tuple of names, their values after the positional ones
};

// What is done around a call. `token` travels from Enter to Leave; null from Enter: the call is of
// no interest.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // Leaves in call_place where the call runs.
  virtual void* Enter(const Api& api, const CallArgs& args) = 0;
  // `result` is null when the call raised (the exception is set and stays set).
  virtual void Leave(void* token, const CallArgs& args, PyObject* result) = 0;
  // After each call by which something is learned to be final, at any depth.
  virtual void Learn(const Api& api, const CallArgs& args, PyObject* result) = 0;
};

class Interposer {
 public:
  // Prepares `callable`, which is attribute `name` of `owner`. Returns "" or why it cannot be
  // observed. A callable that was added before keeps its first name ("" is returned). `api` must
  // live for ever.
  static std::string Add(PyObject* owner, PyObject* name, PyObject* callable, const Api* api);
  // The same for a function whose first argument says what is called (a class's `__call__`):
  // `api_of` answers null for what is not observed. The first argument is no value of the call.
  using ApiOf = const Api* (*)(PyObject* self);
  static std::string AddDispatch(PyObject* function, ApiOf api_of);
  // What `callable` was added as; null: it was not.
  static const Api* Find(PyObject* callable);
  static void Install(CallObserver* observer);
  static void Remove();
  static bool installed();
  // Called once, before the first call of a kCompiler or kEvaluator: may Add more of them.
  static void BeforeCompiling(PyObject* callable);

  // While one of these lives, calls of this thread go straight through: our own use of the
  // framework.
  class Pause {
   public:
    Pause();
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    const InPlace place_;
  };
  static bool Init();  // readies types; once, at import
};

}  // namespace msprobe::capture
