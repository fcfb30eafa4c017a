// Reports of `msprobe compare` beside the table, and when it counts as failed.
//
//   ReportFlags flags;
//   flags.Add(app);                                             // in AddFlags
//   MSPROBE_ASSIGN_OR_RETURN(FailOn limits, flags.Limits());
//   MSPROBE_RETURN_IF_ERROR(flags.Write(results, compared, &files));
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/compare/fail_on.h"
#include "engine/compare/rank_result.h"
#include "engine/compare/report_ranks.h"

namespace msprobe {

struct ReportFlags {
  std::string junit, markdown;
  std::vector<std::string> fail_on;

  void Add(CLI::App& app);
  Result<FailOn> Limits() const;
  bool NeedDetails() const { return !junit.empty() || !markdown.empty(); }
  // Writes the files that were asked for, and appends their names.
  Status Write(std::span<const RankResult> results, const RanksCompared& compared,
               std::vector<std::string>* files) const;
};

}  // namespace msprobe
