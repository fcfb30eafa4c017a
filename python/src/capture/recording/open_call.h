// A call that has begun and not ended, with its entry, which is being filled.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "capture/calls/interpose.h"
#include "capture/gradients/backward.h"
#include "capture/values/changed_values.h"
#include "capture/values/value_writer.h"
#include "engine/base/messages/message.h"

namespace msprobe::capture {

struct OpenCall {
  Entry entry;
  std::string backward;                 // entry name of this call's gradients
  std::string parent, parent_backward;  // entry names of the module call around this call
  int64_t dump = 0;                     // Session::dump() when it began
  int64_t stack = -1;                   // number in stack.json
  int64_t site = -1;                    // number in the table of stacks
  uintptr_t ticket = 0;                 // of a module call: its token, unique in the process
  bool wanted = false;                  // the entry will be recorded
  LateNonfinite given, made;            // whether inputs, and outputs, hold NaN or infinity
  std::optional<Message> flagged;       // what the flag of the device says, where one decides
  Message finding;                      // why a task that selects calls records this one: "NaN"
  std::vector<HeldTensor> held;         // its tensors, until it is known whether it is recorded
  std::vector<PyRef> kept;              // its tensors, while a baseline may ask for their files
  bool wants_backward = false;
  const Api* api = nullptr;  // of an API call
  InputEdges edges;
  SeenVersions versions;  // of arguments or buffers that the call may change
};

}  // namespace msprobe::capture
