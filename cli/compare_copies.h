// The comparison of ranks that are joined (compare/layouts), of which parts of `msprobe compare`
// have left copies (--part, --ray).
//
//   MSPROBE_ASSIGN_OR_RETURN(compare::ComparedPart all, compare::ReadParts(parts.input));
//   // all.joined: of ranks that are joined
//   MSPROBE_ASSIGN_OR_RETURN(const int code, CompareCopies(parts, std::move(all), console));
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/command_line/console.h"
#include "cli/command_line/verb.h"
#include "cli/inputs/compare_inputs.h"
#include "cli/outputs/merge_parts.h"
#include "engine/base/status.h"
#include "engine/compare/ranks/compared_part.h"

namespace msprobe::cli {

// Joins and compares them as `msprobe compare` does with the flags of the parts, and ends as it
// does. Errors: also kInvalidArgument where a file that a flag names is not as the parts read it.
Result<int> CompareCopies(const PartsToMerge& parts, compare::ComparedPart all, Console& out);

// For the verb that does it.
struct CopiedRanks {
  PairedDumps paired;
  std::vector<compare::RankCopy> copies;  // of every dump of the pairs
  std::string folder;                     // where they lie
};
std::unique_ptr<Verb> MakeCompareVerb(CopiedRanks* copied);

}  // namespace msprobe::cli
