// Collectives whose results come after the call has returned (async_op=True, isend, irecv, calls
// that a coalescing manager puts together, functional collectives). Such a call is recorded when
// the program has waited for it, or at stop. Nothing here waits or communicates.
//
//   const bool taken = collectives.TakeIfAsync(&call, args, result);  // true: it owns `call` now
//   collectives.OnWatchedCall(api, args, result, exception);  // the program called work.wait()
//   collectives.Flush();                                         // at stop
#pragma once

#include <Python.h>

#include <list>
#include <memory>
#include <string_view>
#include <vector>

#include "capture/calls/interpose.h"
#include "capture/python/py_ref.h"
#include "capture/recording/open_call.h"
#include "capture/recording/recording.h"

namespace msprobe::capture {

// The arguments of a call: first the positional ones, then those given by keyword.
std::vector<PyRef> Flatten(const CallArgs& args);

// Writes the entries of calls that are complete.
class CallWriter {
 public:
  virtual ~CallWriter() = default;
  // Adds the slot "output" with these values to the call's entry.
  virtual void WriteList(OpenCall* call, const std::vector<PyRef>& values) = 0;
  // Records the entry.
  virtual void Finish(OpenCall* call) = 0;
  // Takes the memory of the call back, for the next one.
  virtual void Recycle(std::unique_ptr<OpenCall> call) = 0;
};

class AsyncCollectives {
 public:
  AsyncCollectives(Recording* recording, CallWriter* writer)
      : recording_(recording), writer_(writer) {}

  bool empty() const { return calls_.empty(); }
  // True when the results of the call come later: the call belongs to this class then.
  bool TakeIfAsync(std::unique_ptr<OpenCall>* call, const CallArgs& args, PyObject* result);
  // To be called after each call of an API of kind kWait, kPoll or kCoalesce. `exception`: the type
  // of the exception that waiting raised; "" when it raised none.
  void OnWatchedCall(const Api& api, const CallArgs& args, PyObject* result,
                     std::string_view exception);
  // To be called when another collective begins: calls of coalescing managers that have ended
  // without a work to wait for are complete.
  void CompleteCoalesced() {
    if (coalescing_ > 0) EndCoalescing(nullptr);
  }
  // Records what is left, each call with what is known of it now.
  void Flush();

 private:
  struct AsyncCall {
    std::unique_ptr<OpenCall> call;
    // All arguments: collectives write their results into them. Of a functional collective: its
    // results.
    std::vector<PyRef> values;
    // What the program has not waited for yet: works; tensors of a functional collective.
    std::vector<PyRef> handles;
    bool functional = false;
    PyRef group;  // set while a coalescing manager of this group is active
  };
  // While it lives, it is we who ask a work whether it is complete, not the program.
  struct Polling {
    explicit Polling(AsyncCollectives* collectives) : flag(&collectives->polls_) { *flag = true; }
    ~Polling() { *flag = false; }
    Polling(const Polling&) = delete;
    Polling& operator=(const Polling&) = delete;
    bool* flag;
  };
  void OnWaited(PyObject* handle, std::string_view exception);
  // From here on `written` is in flight.
  void Expect(AsyncCall async, const std::vector<PyRef>& written);
  void EndCoalescing(PyObject* work);
  void Complete(AsyncCall async, std::string_view exception, bool at_stop);

  Recording* recording_;
  CallWriter* writer_;
  std::list<AsyncCall> calls_;
  bool polls_ = false;
  size_t coalescing_ = 0;  // how many of calls_ have a group
};

}  // namespace msprobe::capture
