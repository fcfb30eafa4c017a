// Runs one command line of msprobe in this process.
//
//   Console console;
//   MSPROBE_ASSIGN_OR_RETURN(const int code, RunMsprobe({"compare", "-tp", a, "-gp", b}, console));
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/console.h"
#include "cli/verb.h"
#include "engine/base/status.h"

namespace msprobe::cli {

// `arguments` are the words after `msprobe`. The result is the exit code (verb.h). An error is not
// printed: that is the caller's.
Result<int> RunMsprobe(std::vector<std::string> arguments, Console& console);

// Parses `arguments` as the flags of the verb, and runs it. `program`: how messages and help call
// it, "msprobe compare".
Result<int> RunVerb(Verb& verb, std::vector<std::string> arguments, std::string_view program,
                    Console& console);

}  // namespace msprobe::cli
