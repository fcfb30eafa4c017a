// --explain CALL of `msprobe compare`: the way of the error from the first divergence to a call.
//
//   explain_.Add(flags);                      // in AddFlags
//   explain_.Look(i, *comparison);            // of each pair of dumps
//   MSPROBE_RETURN_IF_ERROR(explain_.Print(out));
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "cli/command_line/console.h"
#include "cli/command_line/flags.h"
#include "engine/base/status.h"
#include "engine/compare/model/comparison.h"
#include "engine/isolation/error_chain.h"

namespace msprobe::cli {

class ExplainFlag {
 public:
  void Add(Flags& flags);
  bool given() const { return !call_.empty(); }
  // Thread-safe for different pairs.
  void Look(size_t pair, const compare::Comparison& comparison);
  // Prints the chain of the first pair that has the call and a difference; nothing when the flag
  // was not given. Errors: those of FindCall when no pair has the call.
  Status Print(Console& out);

 private:
  struct Found {
    Status status;
    std::string name;  // of the call
    isolation::ErrorChain chain;
  };
  std::string call_;
  std::mutex mutex_;
  std::map<size_t, Found> found_;  // by pair
};

}  // namespace msprobe::cli
