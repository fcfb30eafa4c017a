// An entry that is being composed: between the beginning of a call and its end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "capture/calls/interpose.h"
#include "capture/gradients/backward.h"
#include "capture/values/value_writer.h"

namespace msprobe::capture {

struct OpenCall {
  Entry entry;
  std::string backward, parent,
      parent_backward;  // names: of this call's gradients, of the module around it
  int64_t step = 0;
  int64_t stack = -1;      // number in stack.json
  int64_t site = -1;       // number in the table of stacks
  uintptr_t ticket = 0;    // of a module call: its token, no two are alike
  bool wanted = false;     // goes into dump.json
  Nonfinite given, made;   // in its inputs, in its outputs
  std::string_view found;  // why it is recorded: "NaN", of tasks that choose
  std::vector<Held> held;  // its tensors, until that is known
  bool wants_backward = false;
  const Api* api = nullptr;  // of an API call
  InputEdges edges;
};

}  // namespace msprobe::capture
