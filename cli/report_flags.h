// The flags of `msprobe compare` for further reports, and for the conditions under which a
// comparison counts as failed.
//
//   ReportFlags reports_;
//   reports_.AddFiles(flags), reports_.AddLimits(flags);         // in AddFlags
//   MSPROBE_ASSIGN_OR_RETURN(FailOn limits, reports_.Limits());
//   MSPROBE_RETURN_IF_ERROR(reports_.Write(results, compared, &files));
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/flags.h"
#include "engine/base/status.h"
#include "engine/compare/ranks/rank_result.h"
#include "engine/compare/report/report_ranks.h"
#include "engine/compare/table/fail_on.h"

namespace msprobe::cli {

struct ReportFlags {
  std::string junit, markdown;
  std::vector<std::string> fail_on;

  void AddFiles(Flags& flags);
  void AddLimits(Flags& flags);
  Result<compare::FailOn> Limits() const;
  bool NeedDetails() const { return !junit.empty() || !markdown.empty(); }
  // Writes the reports that were asked for, and appends their paths to `files`.
  Status Write(std::span<const compare::RankResult> results, const compare::RanksCompared& compared,
               std::vector<std::string>* files) const;
};

}  // namespace msprobe::cli
