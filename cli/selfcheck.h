// The three runs of `msprobe selfcheck`: a program without the tool, once more without it, and with
// it.
//
//   MSPROBE_ASSIGN_OR_RETURN(const SelfcheckResult result, RunSelfcheck(options));
//   if (result.verdict == SelfcheckResult::kIdentical) ...
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::cli {

struct SelfcheckOptions {
  std::string level, task, config, python, folder;  // level, task "": not given
  bool drive_options_given = false;  // level, task or config was given on the command line
  int64_t steps = 0;                 // 0: all
  std::vector<std::string> command;  // script and arguments, or "-m", module and arguments
  std::function<void(const Message&)> progress;
};

struct SelfcheckResult {
  enum Verdict { kIdentical, kDiffers, kUnknown } verdict = kUnknown;
  Message reason;      // why the verdict is not kIdentical, one line
  Message hint;        // what to do next; may be empty
  std::string output;  // last lines of a program that failed
  std::vector<Message> notes;
  std::string unit = "optimizer";  // what ends a step: "optimizer" or "backward"
  size_t steps = 0, values = 0, parameters = 0;
  bool own_debugger = false;
  int64_t off_nanoseconds = 0, on_nanoseconds = 0;  // median time of a step
  int64_t records = 0;
  uint64_t bytes = 0;
};

// Errors: the program could not be run at all, or an option is wrong.
Result<SelfcheckResult> RunSelfcheck(const SelfcheckOptions& options);

}  // namespace msprobe::cli
