// The flags of `msprobe compare` for further reports, and for the conditions under which a
// comparison counts as failed.
//
//   ReportFlags reports_;
//   reports_.AddFiles(flags), reports_.AddLimits(flags);         // in AddFlags
//   MSPROBE_ASSIGN_OR_RETURN(FailOn limits, reports_.Limits());
//   MSPROBE_RETURN_IF_ERROR(reports_.Write(results, compared, parts, &trends, &files));
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/command_line/flags.h"
#include "engine/base/status.h"
#include "engine/compare/ranks/rank_result.h"
#include "engine/compare/report/report_ranks.h"
#include "engine/compare/table/fail_on.h"
#include "engine/exports/exporter.h"
#include "engine/report_page/page_part.h"
#include "engine/report_page/parameter_trends.h"

namespace msprobe::cli {

struct ReportFlags {
  std::string junit, markdown, html, perfetto, model_explorer, vis_db;
  std::vector<std::string> fail_on;

  void AddFiles(Flags& flags);
  void AddSummaries(Flags& flags);  // of them those that need no more than the results
  void AddLimits(Flags& flags);
  Result<compare::FailOn> Limits() const;
  bool NeedDetails() const { return !junit.empty() || !markdown.empty(); }
  // The files for other viewers that were asked for.
  struct Export {
    exports::ExportFormat format;
    std::string path;
  };
  std::vector<Export> Exports() const;
  // Writes the reports that were asked for, and appends their paths to `files`. `parts`: of the
  // page, one for each result when `html` is given, else none; they are used up, and so is
  // `trends`.
  Status Write(std::span<const compare::RankResult> results, const compare::RanksCompared& compared,
               std::span<report_page::PagePart> parts, report_page::ParameterTrends* trends,
               std::vector<std::string>* files) const;
};

}  // namespace msprobe::cli
