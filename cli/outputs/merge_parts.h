// The report on all parts of a comparison, which several processes have compared (--part, --ray).
//
//   const PartsToMerge parts{.input = "out", .output = "out"};
//   MSPROBE_ASSIGN_OR_RETURN(compare::ComparedPart all, compare::ReadParts(parts.input));
//   MSPROBE_ASSIGN_OR_RETURN(const int code, MergeParts(parts, std::move(all), console));
#pragma once

#include <string>

#include "cli/command_line/console.h"
#include "cli/outputs/compare_output.h"
#include "cli/outputs/report_flags.h"
#include "engine/base/status.h"
#include "engine/compare/ranks/compared_part.h"

namespace msprobe::cli {

struct PartsToMerge {
  std::string input = {}, output = {};  // folders: of the parts, for the files that are written
  StdoutFormat format = StdoutFormat::kTable;
  bool exit_code = false;  // the verdict counts
  ReportFlags reports = {};
};

// Ends as `msprobe compare` does that has compared all ranks itself, with its exit code. `all`: of
// ranks that are compared one by one (compare_copies.h has those that are joined). Errors: those of
// CompareOutput.
Result<int> MergeParts(const PartsToMerge& parts, compare::ComparedPart all, Console& out);

}  // namespace msprobe::cli
