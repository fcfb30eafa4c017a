// Reports for continuous integration: JUnit XML and Markdown.
//
//   MSPROBE_RETURN_IF_ERROR(WriteFileAtomically("junit.xml", JUnitReport(results)));
#pragma once

#include <span>
#include <string>

#include "engine/compare/ranks/rank_result.h"
#include "engine/compare/report/report_ranks.h"

namespace msprobe::compare {

// One test suite for each pair of dumps. Its tests: `compare` for the whole pair; `fail-on` for
// each condition of --fail-on that is met; and one for each operation
// ("Functional.linear.forward"), which fails when a call differs and is skipped when no call could
// be judged. Needs RankResult::details.
std::string JUnitReport(std::span<const RankResult> results);

// For the summary of a job: verdict, where it begins, a table of ranks, the first calls that
// differ.
std::string MarkdownReport(std::span<const RankResult> results, const RanksCompared& compared);

}  // namespace msprobe::compare
