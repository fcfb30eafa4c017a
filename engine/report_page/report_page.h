// A comparison, or one dump, as one HTML file that needs nothing else: what was found as plain
// text, and the calls to walk through. It makes no request; text of a dump is never markup in it.
//
//   std::vector<PagePart> parts = {PartOf(comparison, {})};            // page_part.h
//   const PageText html = ComparisonPage(results, {"runs/new", "runs/good", {}}, parts);
//   MSPROBE_RETURN_IF_ERROR(WriteFileAtomically("report.html", html));
#pragma once

#include <span>
#include <string>

#include "engine/compare/ranks/rank_result.h"
#include "engine/compare/report/report_ranks.h"
#include "engine/model/table.h"
#include "engine/report_page/page_part.h"

namespace msprobe::report_page {

// `parts[i]` is of `results[i]`; that of a pair that could not be compared is empty. The parts are
// moved into the page. `trends`: of several steps (parameter_trends.h).
PageText ComparisonPage(std::span<const compare::RankResult> results,
                        const compare::RanksCompared& compared, std::span<PagePart> parts,
                        PageText trends = {});

PageText DumpPage(const Dump& dump, PagePart part);

}  // namespace msprobe::report_page
