// --why CALL of `msprobe compare`: how the values of a call, or one of them, are known to be those
// of the golden, or that they are not, and the same of what they were made of.
//
//   why_.Add(flags);                      // in AddFlags
//   why_.Look(i, *comparison);            // of each pair of dumps, compared with keep_proofs
//   MSPROBE_RETURN_IF_ERROR(why_.Print(out));
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "cli/command_line/console.h"
#include "cli/command_line/flags.h"
#include "engine/base/status.h"
#include "engine/compare/model/comparison.h"
#include "engine/compare/proofs/words.h"

namespace msprobe::cli {

class WhyFlag {
 public:
  void Add(Flags& flags);
  bool given() const { return !call_.empty(); }
  // Thread-safe for different pairs.
  void Look(size_t pair, const compare::Comparison& comparison);
  // Prints the proof of the first pair that has the call, and one where a value is wrong before one
  // where none is; nothing when the flag was not given. Errors: those of FindCall when no pair has
  // the call; kInternal when a proof does not hold.
  Status Print(Console& out);

 private:
  struct Found {
    Status status;
    std::string name;  // of the call, or of its value
    compare::ProofChain chain;
    Message refusal;  // of a proof of the comparison; "": all hold
  };
  static void PrintLine(const compare::ProofLine& line, Console& out);

  std::string call_;
  std::mutex mutex_;
  std::map<size_t, Found> found_;  // by pair
};

}  // namespace msprobe::cli
