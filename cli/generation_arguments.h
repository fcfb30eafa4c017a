// The command line of msprobe 1.0 and 8, said in ours.
//
//   TranslateArguments({"-f", "pytorch", "compare", "-i", "compare.json", "-o", "out"});
//   // compare --target_path ... --golden_path ... --table-format 8 --xlsx --advisor -o out
#pragma once

#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/compare/compare_input.h"

namespace msprobe::cli {

// Whether the arguments begin with -f or --framework.
bool BeginsWithFramework(const std::vector<std::string>& arguments);

// What to type today. compare reads the compare.json it names. Errors: kInvalidArgument for a
// framework there is none of or a missing -i; those of ReadCompareInput.
Result<std::vector<std::string>> TranslateArguments(const std::vector<std::string>& arguments);

// `flags`: what follows `compare` there. `input`: what compare.json would say, in place of -i.
Result<std::vector<std::string>> TranslateCompareArguments(const std::vector<std::string>& flags,
                                                           const compare::CompareInput& input);

}  // namespace msprobe::cli
