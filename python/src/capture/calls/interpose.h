// Sees every call of a listed function or method without replacing any object. Python keeps inside
// each callable the pointer through which it is called; that pointer is swapped in place. Identity,
// hash, equality, signature and every alias of the callable stay the same, so a program that holds
// a reference to it is observed as well. Remove restores every pointer.
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
//   Message why = Interposer::Add(owner, name, function, &api);
//   Interposer::Install(&observer);
//   Train();
//   Interposer::Remove();
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "capture/calls/call_place.h"
#include "engine/base/messages/message.h"
#include "engine/formats/text/ignore_rules.h"

namespace msprobe::capture {

class CollectiveSignature;

// A function that is observed: one whose calls are recorded, or one that tells something about
// other calls. `recorded` and `ignored` may change between recordings.
struct Api {
  enum Kind {
    // Each call is recorded, unless it runs inside another recorded call.
    kCall,
    // A torch.autograd.Function: each call is recorded, unless it runs inside a recorded call of
    // kind kCall. The calls that it makes are recorded as well.
    kFunction,
    // Work.wait(): when it returns, the results of its first argument are final.
    kWait,
    // Work.is_completed(): the same, when it returns True.
    kPoll,
    // _CoalescingManager.append(manager, work): `work` is the work of all collectives that the
    // manager has put together.
    kCoalesce,
    // Returns memory that nobody has written (torch.empty). Told of when no listed call is around
    // it: what a listed call does inside itself is its own matter.
    kAllocator,
    // UntypedStorage.resize_: a storage that grows has memory after its old content that nobody has
    // written. FSDP 1 frees and allocates its whole parameters so.
    kResizer,
    // Writes every element of its argument `out`, else of its first: what FSDP 2 copies its shards
    // with.
    kFiller,
    // A compiler. It traces: calls that it makes are not part of the training step. It also reads
    // the code of Python functions (code_stub.h).
    kCompiler,
    // Sets who evaluates Python frames, as torch.compile does.
    kEvaluator,
    // Moves or converts the parameters of a module (Module._apply, below module.npu() and .half()),
    // or runs a stage of a pipeline on memory that nobody has written, for the shapes of its
    // results: the calls inside are no part of what the program computes, and are not recorded.
    kConverter,
    // Resets the pointers of module calls (module_calls.h).
    kPatcher,
    // A step of an optimizer, or what belongs to it; the Api is an OptimizerApi
    // (optimizer_calls.h).
    kOptimizer,
  };
  // What a recorded call does with memory that nobody has written (unwritten_memory.h).
  enum class Memory : uint8_t {
    kOther,
    kFills,    // writes every element of its first argument: copy_
    kAssigns,  // writes the part of its first argument that the second selects: __setitem__
    kUpdates,  // writes an unknown part of its first argument: scatter_
  };
  std::string prefix;                // "Functional"
  std::string stem;                  // "Functional.linear.": the entry names begin with it
  uint32_t counter = 0;              // index of the call counter; APIs of equal name share one
  bool output_is_arguments = false;  // collectives: results are written into the arguments
  std::shared_ptr<const CollectiveSignature> collective;  // null: not a call of torch.distributed
  Kind kind = kCall;
  Memory memory = Memory::kOther;
  // Whether it may change an argument where `memory` does not say so (batch_norm, operators of the
  // program): their version counters are read before and after each call.
  bool may_change = false;
  bool may_draw = false;  // random numbers: the state of the generator is recorded before each call
  bool recorded = true;   // false: the risk level leaves it out; its calls are only counted
  const formats::IgnoreRule* ignored = nullptr;  // which of its values are not recorded
  std::vector<int64_t> unwritten;  // places of the results whose memory it does not write
  bool of_object = false;  // what is called is an object of the program: a Primitive of MindSpore
  bool off = false;  // the program has registered it and taken it back: calls are not observed
};

// The arguments of one call, as Python passes them. Keywords come in one of two forms, never both.
struct CallArgs {
  PyObject* self = nullptr;  // of a method; null otherwise
  PyObject* const* positional = nullptr;
  Py_ssize_t count = 0;
  PyObject* dict = nullptr;      // keywords as a dict, or
  PyObject* names = nullptr;     // a tuple of names; the values stand after the positional ones
  PyObject* callable = nullptr;  // what is called; null: not known
  uint64_t bytes_before = 0;     // kResizer: the storage before the call
  uintptr_t address_before = 0;
};

// Is told of each observed call.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // Before the call. Sets call_place. Returns a token that Leave gets; null: Leave is not called.
  virtual void* Enter(const Api& api, const CallArgs& args) = 0;
  // `result` is null when the call raised (the exception is set and stays set).
  virtual void Leave(void* token, const CallArgs& args, PyObject* result) = 0;
  // After each call of an API of kind kWait, kPoll, kCoalesce, also inside other calls, and of the
  // kinds kAllocator and kResizer.
  virtual void OnWatchedCall(const Api& api, const CallArgs& args, PyObject* result) = 0;
};

class Interposer {
 public:
  // Prepares `callable`, which is attribute `name` of `owner`. Returns "" or why it cannot be
  // observed. A callable that was added before keeps its first name ("" is returned). `api` is
  // never destroyed.
  static Message Add(PyObject* owner, PyObject* name, PyObject* callable, const Api* api);
  // The same for a function whose first argument says which API is called, such as the `__call__`
  // of a class, and for a builtin method of classes. `api_of` maps that argument to the API, or to
  // null when it is not observed. The first argument is not recorded.
  using ApiOf = const Api* (*)(PyObject* self);
  static Message AddDispatch(PyObject* function, ApiOf api_of);
  // The API that `callable` was added as; null: it was not added.
  static const Api* Find(PyObject* callable);
  static void Install(CallObserver* observer);
  static void Remove();
  static bool installed();
  // Sets a callable that is called once, before the first call of a kCompiler or kEvaluator. It may
  // Add more of them.
  static void BeforeCompiling(PyObject* callable);

  // While an object of this class lives, calls of this thread are not observed. Our own uses of the
  // framework stand inside one.
  class Pause {
   public:
    Pause();
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    const PlaceScope place_;
  };
  static bool Init();  // prepares the Python types; once, at import
};

}  // namespace msprobe::capture
