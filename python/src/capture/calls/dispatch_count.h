// Counts all operations that PyTorch's dispatcher runs, by the place they are called from. The
// coverage compares this number with the number of records. The counting uses the callback that
// PyTorch offers to profilers. It costs some hundred nanoseconds for each operation, so it is on
// for one step only.
//
//   Message why = DispatchCount::Install(false);   // "" or why this PyTorch cannot be asked
//   Train();
//   DispatchCount::Remove();
//   DispatchCount::Tally tally = DispatchCount::Take();
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "engine/base/messages/message.h"

namespace msprobe::capture {

class DispatchCount {
 public:
  // Why an operation outside of all listed calls was not observed. kBackward: communication that
  // was started while gradients were computed, and not by a listed call.
  enum class Outside : uint8_t { kPython, kOtherThread, kTracing, kCompiled, kBackward };
  struct Tally {
    int64_t recorded = 0, nested = 0, gradient = 0, ignored = 0, compiled_regions = 0;
    std::map<std::pair<std::string, Outside>, int64_t> outside;  // by operation
  };

  // While it counts, `told(context)` is called whenever compiled code is entered, on the thread
  // that enters it, which holds the GIL.
  static void TellOfCompiledCode(void (*told)(void* context), void* context);
  // Returns "", or why this PyTorch cannot be asked. `modules_only`: modules are recorded and APIs
  // are not, so that an operation inside a recorded module counts as recorded.
  static Message Install(bool modules_only);
  static void Remove();
  static bool installed();
  static Tally Take();    // returns the counts and sets them to 0
  static void Abandon();  // in a forked child: nothing is counted there any more
};

}  // namespace msprobe::capture
