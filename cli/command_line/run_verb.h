// Parses the flags of a verb, and runs it.
//
//   MSPROBE_ASSIGN_OR_RETURN(const int code, RunVerb(verb, {"-n", "4"}, "msprobe show", console));
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/command_line/console.h"
#include "cli/command_line/verb.h"
#include "engine/base/status.h"

namespace msprobe::cli {

// Parses `arguments` as the flags of the verb, and runs it. `program`: how messages and help call
// it, "msprobe compare".
Result<int> RunVerb(Verb& verb, std::vector<std::string> arguments, std::string_view program,
                    Console& console);

}  // namespace msprobe::cli
