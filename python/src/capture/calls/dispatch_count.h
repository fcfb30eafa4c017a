// Counts the operations that PyTorch's dispatcher runs, by where they are called from: the whole of
// which the records are a part. Through the callback that PyTorch offers to profilers; costs some
// hundred nanoseconds an operation, so it is on for one step only.
//
//   std::string why = DispatchCount::Install(false);   // "" or why this PyTorch cannot be asked
//   Train();
//   DispatchCount::Remove();
//   DispatchCount::Tally tally = DispatchCount::Take();
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace msprobe::capture {

class DispatchCount {
 public:
  // Why an operation outside of all listed calls is not observed, as far as the place tells.
  // kBackward: communication, started while gradients are computed and by no listed call.
  enum class Outside : uint8_t { kPython, kOtherThread, kTracing, kCompiled, kBackward };
  struct Tally {
    int64_t recorded = 0, nested = 0, gradient = 0, ignored = 0, compiled_regions = 0;
    std::map<std::pair<std::string, Outside>, int64_t> outside;  // by operation
  };

  // `modules_only`: what runs inside a recorded module is inside a record.
  static std::string Install(bool modules_only);
  static void Remove();
  static bool installed();
  static Tally Take();    // and begins at 0 again
  static void Abandon();  // in a forked child: never again
};

}  // namespace msprobe::capture
