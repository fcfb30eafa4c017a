// Translates the command line of msprobe 1.0 to 8 into today's.
//
//   TranslateArguments({"-f", "pytorch", "compare", "-i", "compare.json", "-o", "out"});
//   // compare --target_path ... --golden_path ... --table-format auto --xlsx --advisor -o out
#pragma once

#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/compare/compare_input.h"

namespace msprobe::cli {

// Whether the arguments begin with -f or --framework.
bool BeginsWithFramework(const std::vector<std::string>& arguments);

// The arguments to type today. For `compare`, the compare.json that -i names is read. Errors:
// kInvalidArgument for an unknown framework or a missing -i; those of ReadCompareInput.
Result<std::vector<std::string>> TranslateArguments(const std::vector<std::string>& arguments);

// The same for `flags`, which follow `compare`, and for `input`, which stands for the compare.json
// of -i.
Result<std::vector<std::string>> TranslateCompareArguments(const std::vector<std::string>& flags,
                                                           const compare::CompareInput& input);

}  // namespace msprobe::cli
