// What follows `msprobe` on the command line, in this process.
//
//   Console console;
//   MSPROBE_ASSIGN_OR_RETURN(const int code, RunMsprobe({"compare", "-tp", a, "-gp", b}, console));
#pragma once

#include <string>
#include <vector>

#include "cli/console.h"
#include "engine/base/status.h"

namespace msprobe::cli {

// The exit code (verb.h). An error has not been printed yet.
Result<int> RunMsprobe(std::vector<std::string> arguments, Console& console);

}  // namespace msprobe::cli
