// Collectives that have returned and whose results come later: recorded when the program has waited
// for them. Nothing here waits or communicates.
//
//   const bool taken = late.Postpone(&call, args, result);   // `call` is theirs now
//   late.Learn(api, args, result, exception);            // the program has waited, or polled
//   late.Flush();                                        // at stop: as far as they are
#pragma once

#include <Python.h>

#include <list>
#include <memory>
#include <string_view>
#include <vector>

#include "capture/calls/interpose.h"
#include "capture/python/py_ref.h"
#include "capture/recording/open_call.h"

namespace msprobe::capture {

// The values of a call, those of keywords behind the positional ones.
std::vector<PyRef> Flatten(const CallArgs& args);

// Who writes the entries.
class CallWriter {
 public:
  virtual ~CallWriter() = default;
  virtual void WriteList(OpenCall* call, const std::vector<PyRef>& values) = 0;  // its outputs
  virtual void Finish(OpenCall* call) = 0;
  virtual void Recycle(std::unique_ptr<OpenCall> call) = 0;
};

class LateCalls {
 public:
  explicit LateCalls(CallWriter* writer) : writer_(writer) {}

  bool empty() const { return late_.empty(); }
  // Takes the call when its results come later.
  bool Postpone(std::unique_ptr<OpenCall>* call, const CallArgs& args, PyObject* result);
  // From a call of a function by which something is known to be final.
  void Learn(const Api& api, const CallArgs& args, PyObject* result, std::string_view exception);
  // Another call begins: those of managers that have ended are complete.
  void Settle() {
    if (coalescing_ > 0) SettleCoalesced(nullptr);
  }
  void Flush();

 private:
  struct LateCall {
    std::unique_ptr<OpenCall> call;
    std::vector<PyRef> values;   // all arguments: they hold the results
    std::vector<PyRef> handles;  // works that were not waited for yet
    PyRef group;                 // while a coalescing manager is putting its calls together
  };
  void Waited(PyObject* handle, std::string_view exception);
  void SettleCoalesced(PyObject* work);
  void Complete(LateCall late, std::string_view exception, bool at_stop);

  CallWriter* writer_;
  std::list<LateCall> late_;
  size_t coalescing_ = 0;  // of late_
};

}  // namespace msprobe::capture
