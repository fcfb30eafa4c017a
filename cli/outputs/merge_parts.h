// The report on all parts of a comparison, which several processes have compared (--part, --ray).
//
//   const PartsToMerge parts{.input = "out", .output = "out"};
//   MSPROBE_ASSIGN_OR_RETURN(const int code, MergeParts(parts, console));
#pragma once

#include <string>

#include "cli/command_line/console.h"
#include "cli/outputs/compare_output.h"
#include "cli/outputs/report_flags.h"
#include "engine/base/status.h"

namespace msprobe::cli {

struct PartsToMerge {
  std::string input = {}, output = {};  // folders: of the parts, for the files that are written
  StdoutFormat format = StdoutFormat::kTable;
  bool exit_code = false;  // the verdict counts
  ReportFlags reports = {};
};

// Ends as `msprobe compare` does that has compared all ranks itself, with its exit code. Errors:
// those of ReadParts and of CompareOutput.
Result<int> MergeParts(const PartsToMerge& parts, Console& out);

}  // namespace msprobe::cli
