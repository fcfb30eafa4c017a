// Counts the calls that a task has found (calls that make NaN, calls that differ from the reference
// dump). Each is logged; after a configured number of them, collection ends.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "capture/recording/recording.h"
#include "engine/base/messages/message.h"

namespace msprobe::capture {

// Raises an exception in the main thread, as soon as that thread runs Python code again. `type`: of
// the module msprobe; "": ValueError.
void RaiseInMainThread(const char* type, const Message& text);

class Findings {
 public:
  // `complete` is called before collection ends, to write the last files of the step.
  Findings(Recording* recording, std::function<void()> complete)
      : recording_(recording), complete_(std::move(complete)) {}

  // One more call was found. `what`: for the log line, "Torch.log.0.forward makes NaN". `limit`:
  // collection ends at this number; -1: never. `end`: the last line, "{} calls that overflow are
  // recorded". `site`: number of the call's stack.
  void Count(const Message& what, int64_t limit, const Message::Format<1>& end, int64_t site);
  void Forget() { count_ = 0; }

 private:
  Recording* recording_;
  std::function<void()> complete_;
  int64_t count_ = 0;
};

}  // namespace msprobe::capture
