// A verb is the word after `msprobe` on the command line. Each verb is one class in one file: its
// flags, its help, and its work, which is a call or two into the engine.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command_line/console.h"
#include "cli/command_line/flags.h"
#include "engine/base/status.h"

namespace msprobe::cli {

// Exit codes, of every verb.
inline constexpr int kExitOk = 0;
inline constexpr int kExitDiffers = 1;  // the work was done, and its answer is "no"
inline constexpr int kExitError = 2;    // the work could not be done

class Verb {
 public:
  virtual ~Verb() = default;
  virtual std::string_view name() const = 0;
  virtual Message summary() const = 0;      // one line, for the list of verbs
  virtual void AddFlags(Flags& flags) = 0;  // pointers to members: the verb outlives `flags`
  // Whether the verb runs a command: the words from the first one that is not a flag are then not
  // parsed, but given to SetCommand.
  virtual bool TakesCommand() const { return false; }
  virtual void SetCommand(const std::vector<std::string>& /*words*/) {}
  virtual Result<int> Run(
      Console& out) = 0;  // the exit code; an error is printed by main and exits with kExitError
};

}  // namespace msprobe::cli
