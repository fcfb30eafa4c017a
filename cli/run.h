// Runs one command line of msprobe in this process.
//
//   Console console;
//   MSPROBE_ASSIGN_OR_RETURN(const int code, RunMsprobe({"compare", "-tp", a, "-gp", b}, console));
#pragma once

#include <string>
#include <vector>

#include "cli/command_line/console.h"
#include "engine/base/status.h"

namespace msprobe::cli {

// `arguments` are the words after `msprobe`. The result is the exit code (verb.h). An error is not
// printed: that is the caller's.
Result<int> RunMsprobe(std::vector<std::string> arguments, Console& console);

}  // namespace msprobe::cli
