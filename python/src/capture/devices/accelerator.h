// One device of the machine, through the module that PyTorch has for its type (torch.npu,
// torch.cuda): streams and events.
//
//   Accelerator npu("npu", 0);
//   const PyRef event = npu.Record(npu.CurrentStream());
//   if (npu.HasPassed(event)) Read();
#pragma once

#include <Python.h>

#include <string>

#include "capture/python/py_ref.h"

namespace msprobe::capture {

// Nothing here leaves a Python error set.
class Accelerator {
 public:
  Accelerator(std::string type, int64_t index);

  const std::string& name() const { return name_; }  // "npu:0"
  const PyRef& device() const { return device_; }    // torch.device
  bool usable() const { return usable_; }            // it has streams and events
  PyRef CurrentStream() const;                       // of this thread; null after a failure
  // Something that is equal as long as the same stream is the current one, and is cheaper to ask
  // for.
  PyRef StreamMark() const;
  static bool SameStream(const PyRef& a, const PyRef& b);
  // An event after all work that the stream has now; null after a failure.
  PyRef Record(const PyRef& stream) const;
  // False also when the device does not answer.
  static bool HasPassed(const PyRef& event);
  static bool Wait(const PyRef& event);  // false: the device has failed
  // While an object of this class lives, operations of this thread go to `stream`.
  class OnStream {
   public:
    OnStream(const Accelerator& device, const PyRef& stream);
    ~OnStream();
    OnStream(const OnStream&) = delete;
    OnStream& operator=(const OnStream&) = delete;

   private:
    PyRef manager_;
  };

 private:
  std::string name_;
  PyRef device_, index_, current_stream_, stream_mark_, event_, stream_;
  bool usable_ = false;
};

}  // namespace msprobe::capture
