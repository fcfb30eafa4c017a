#include "engine/report_page/gradient_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/report_page/page_frame.h"
#include "engine/report_page/trends.h"

namespace msprobe::report_page {
namespace {

using gradients::GradientComparison;
using gradients::GradientFall;
using gradients::RankSimilarity;
using gradients::Similarity;

std::string Finding(const GradientComparison& c) {
  if (!c.fall) {
    if (!c.first_difference) return Element("h1", "calm", "All directions are the same.");
    return Element(
        "h1", "calm",
        fmt::format("No similarity falls. The first direction differs in step {}, at {}.",
                    c.first_difference->step, c.first_difference->parameter));
  }
  const GradientFall& fall = *c.fall;
  const int64_t rank = c.ranks[c.fall_rank].rank;
  std::string html =
      Element("p", "label",
              fmt::format("The similarity first falls in step {}{}", fall.step,
                          rank < 0 ? std::string() : fmt::format(", on rank {}", rank)));
  html += Element("h1", "", fall.parameter);
  html += Element(
      "p", "why",
      fmt::format("{}{:.4g}: {} of {} elements point elsewhere.",
                  fall.before ? fmt::format("{:.4g} before, now ", *fall.before) : std::string(),
                  fall.similarity, fall.changed, fall.count));
  html += Element("p", "next", fall.why);
  if (c.fall_norms) {
    html += Element("p", "quiet",
                    fmt::format("The norm is {:.6g} in the target, {:.6g} in the golden.",
                                c.fall_norms->target, c.fall_norms->golden));
  }
  if (!c.first_difference || c.first_difference->step == fall.step) return html;
  return html + Element("p", "quiet",
                        fmt::format("All directions are the same before step {}, where {} of {} "
                                    "elements of {} point elsewhere.",
                                    c.first_difference->step, c.first_difference->changed,
                                    c.first_difference->count, c.first_difference->parameter));
}

TrendPoint PointOf(std::string name, const Similarity& cell) {
  return {.name = std::move(name),
          .target_norm = static_cast<float>(cell.target_norm),
          .golden_norm = static_cast<float>(cell.golden_norm),
          .apart = cell.count > 0 ? static_cast<float>(1 - cell.share()) : 0,
          .verdict = cell.same == cell.count ? compare::RowVerdict::kEqual
                                             : compare::RowVerdict::kDiffers};
}

Trend OfParameters(const GradientComparison& c) {
  Trend trend({.title = "gradients", .measure = TrendMeasure::kShare}, c.all.steps(), {-1});
  for (size_t row = 0; row < c.all.parameters().size(); ++row) {
    for (size_t step = 0; step < c.all.steps().size(); ++step) {
      const Similarity& cell = c.all.At(row, step);
      if (cell.known()) trend.Add(step, 0, PointOf(c.all.parameters()[row], cell));
    }
  }
  return trend;
}

// A row for each rank: all its parameters together.
Trend OfRanks(const GradientComparison& c) {
  const std::vector<int64_t>& steps = c.all.steps();
  Trend trend({.title = "ranks", .measure = TrendMeasure::kShare}, steps, {-1});
  for (const RankSimilarity& rank : c.ranks) {
    const std::string name =
        rank.rank < 0 ? std::string("all parameters") : fmt::format("rank {}", rank.rank);
    for (size_t s = 0; s < rank.steps.size(); ++s) {
      const auto step = std::lower_bound(steps.begin(), steps.end(), rank.steps[s]);
      if (rank.summary[s].known())
        trend.Add(static_cast<size_t>(step - steps.begin()), 0, PointOf(name, rank.summary[s]));
    }
  }
  return trend;
}

}  // namespace

PageText GradientPage(const GradientComparison& c, std::string_view target,
                      std::string_view golden) {
  const bool unknown = !c.fall && !c.errors.empty();
  const std::string verdict = c.fall               ? fmt::format("FALLS in step {}", c.fall->step)
                              : unknown            ? "UNKNOWN"
                              : c.first_difference ? "SIMILAR, nothing falls"
                                                   : "SAME directions";
  const std::string_view kind = c.fall ? "differs" : unknown ? "unknown" : "equal";
  std::string html = HeadOfPage("msprobe: similarity of gradients");
  html += Header(verdict, kind, Sides(target, golden));
  html += fmt::format("<section id=\"finding\" class=\"{}\" data-part=\"0\">\n", kind);
  html += Finding(c) + "</section>\n";
  html += fmt::format("<details id=\"facts\"{}><summary>What was compared</summary>\n<dl>\n",
                      c.errors.empty() ? "" : " open");
  html += Term("steps", fmt::format("{}", c.all.steps().size()));
  html += Term("ranks", fmt::format("{}", c.ranks.size()));
  html += Term("parameters", fmt::format("{}", c.all.parameters().size()));
  for (const std::string& error : c.errors) html += Term("error", error);
  for (const std::string& note : c.notes) html += Term("note", note);
  html += "</dl>\n</details>\n";
  html += kRoom;
  PageText trends;
  AppendTrends(std::vector<Trend>{OfParameters(c), OfRanks(c)}, &trends);
  return PageOf(std::move(html), std::move(trends), {});
}

}  // namespace msprobe::report_page
