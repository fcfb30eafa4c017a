#include "engine/report_page/report_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/ranks/drifting_ranks.h"
#include "engine/compare/ranks/rank_findings.h"
#include "engine/compare/report/findings_screen.h"
#include "engine/compare/report/terminal_words.h"
#include "engine/dump/write/parallel_layout.h"
#include "engine/model/names.h"
#include "engine/report_page/dump_questions.h"
#include "engine/report_page/page_data.h"
#include "engine/report_page/page_frame.h"

namespace msprobe::report_page {
namespace {

using compare::Findings;
using compare::LabelledText;
using compare::RankResult;

std::string Place(const RankResult& r) {
  std::string text = r.step >= 0 ? fmt::format("step {}", r.step) : "";
  if (r.rank >= 0) text += fmt::format("{}rank {}", text.empty() ? "" : ", ", r.rank);
  return text;
}

// The first divergence with its place, its reason and what to do next.
std::string Divergence(const Findings& found, std::string_view where) {
  const compare::FirstDivergence& f = found.first;
  const double percent = 100 * f.confidence;
  std::string html =
      Element("p", "label",
              where.empty() ? "First divergence, confidence {:.0f}%"_t(percent)
                            : "First divergence: {}, confidence {:.0f}%"_t(where, percent));
  html += NameElement("h1", "", found.first_name.English());
  if (!f.source_line.empty())
    html += "<p class=\"source\"><code>" + HtmlText(f.source_line) + "</code></p>\n";
  if (!f.caller_line.empty())
    html += "<p class=\"source\">" + Tagged("span", "", "called from"_t) + " <code>" +
            HtmlText(f.caller_line) + "</code></p>\n";
  if (!f.golden_line.empty())
    html += "<p class=\"source\">" + Tagged("span", "", "in the golden"_t) + " <code>" +
            HtmlText(f.golden_line) + "</code></p>\n";
  if (!f.module.empty())
    html += fmt::format("<p class=\"quiet\">{} <span translate=\"no\">{}</span></p>\n",
                        Tagged("span", "", "In module"_t), HtmlText(f.module));
  html += Element("p", "why", f.why);
  if (!f.advice.empty()) html += Element("p", "next", "Next: {}"_t(f.advice));
  return html;
}

std::string NoDivergence(const Findings& found) {
  const Message said = compare::FindingsScreen(found, {}).NoDivergence();
  return Element("h1", "calm", Message::Joined({said, found.first_bits}, " "));
}

std::string Facts(const Findings& found, const std::vector<Message>& left_out) {
  std::string html = "<dl>\n";
  for (const auto& facts : {CountsOf(found), ConditionsOf(found)}) {
    for (const LabelledText& fact : facts) html += Term(fact.label, fact.text);
  }
  if (found.first.pair >= 0) html += Term("first bits"_t, found.first_bits);
  for (const Message& sentence : found.not_observed) html += Term("not known"_t, sentence);
  for (const Message& sentence : left_out) html += Term("not compared"_t, sentence);
  return html + "</dl>\n";
}

std::string OtherCalls(const Findings& found) {
  if (found.others.empty()) return "";
  std::string html =
      "<table id=\"others\">" + Tagged("caption", "", "Calls that also differ"_t) + "<thead><tr>";
  for (const Message& title : {"call"_t, "class"_t, "what"_t, "roundings"_t})
    html += Tagged("th", "", title);
  html += "</tr></thead><tbody>\n";
  for (const Findings::OtherCall& call : found.others) {
    html += fmt::format("<tr><td translate=\"no\">{}</td>{}{}<td>{}</td></tr>\n",
                        HtmlText(call.name, 300), Tagged("td", "", ClassName(call.call_class)),
                        Tagged("td", "", call.what, 300), HtmlText(call.roundings));
  }
  html += "</tbody></table>\n";
  if (found.more_others > 0) html += Element("p", "quiet", "and {} more"_t(found.more_others));
  return html;
}

// One row for each pair of dumps; the script makes a matrix of it.
std::string Pairs(std::span<const RankResult> results) {
  if (results.size() < 2) return "";
  std::string html =
      "<table id=\"pairs\">" + Tagged("caption", "", "Steps and ranks"_t) + "<thead><tr>";
  for (const Message& title : {"step"_t, "rank"_t, "verdict"_t, "first divergence"_t})
    html += Tagged("th", "", title);
  html += "</tr></thead><tbody>\n";
  const int32_t first_wrong_step = compare::FirstWrongStep(results);
  for (size_t i = 0; i < results.size(); ++i) {
    const RankResult& r = results[i];
    const Message inherited = compare::InheritedFrom(r, first_wrong_step);
    const Message verdict =
        r.failed.ok() ? Message(compare::RunVerdictName(r.summary.verdict)) : "error"_t;
    html += fmt::format(
        "<tr data-part=\"{}\" data-step=\"{}\" "
        "data-rank=\"{}\"{}><td>{}</td><td>{}</td>{}{}</tr>\n",
        i, r.step, r.rank,
        inherited.empty() ? "" : fmt::format(" data-inherited=\"{}\"", first_wrong_step),
        r.step < 0 ? "" : fmt::format("{}", r.step), r.rank < 0 ? "" : fmt::format("{}", r.rank),
        Tagged("td", "", verdict),
        Tagged("td", "",
               !r.failed.ok()       ? r.failed.AsMessage()
               : !inherited.empty() ? inherited
                                    : r.first_name,
               300));
  }
  return html + "</tbody></table>\n";
}

}  // namespace

PageText ComparisonPage(std::span<const RankResult> results, const compare::RanksCompared& compared,
                        std::span<PagePart> parts, PageText trends) {
  const RankResult* first = nullptr;
  std::string travelled;
  for (const compare::StepOrigins& step : compare::OriginsOfSteps(results)) {
    if (step.found.origins.empty()) continue;
    first = &results[step.results[step.found.origins[0].trace]];
    for (const compare::RankHop& hop : step.found.hops) {
      if (!hop.from.empty())
        travelled += Element("p", "quiet", "Travelled: {}"_t(compare::DescribeHop(hop)));
    }
    travelled += Element("p", "quiet", compare::DescribeOutside(step, results));
    if (const auto drift = compare::FindDrift(results); drift && !drift->IsSaidBy(*first))
      travelled += Element("p", "quiet", compare::DescribeDrift(*drift));
    break;
  }
  const bool any = std::any_of(results.begin(), results.end(),
                               [](const RankResult& r) { return r.failed.ok(); });
  const Findings found = results.size() == 1 ? static_cast<const Findings&>(results[0])
                         : any               ? compare::FindingsOfRanks(results, first)
                                             : Findings();
  const compare::RunVerdict verdict = compare::VerdictOver(results);
  const size_t shown = first == nullptr ? 0 : static_cast<size_t>(first - results.data());
  std::string html =
      HeadOfPage(fmt::format("msprobe: {}{}{}", compare::Headline(verdict).English(),
                             found.first_name.empty() ? "" : ": ", found.first_name.English()));
  html += Header(compare::Headline(verdict), compare::RunVerdictName(verdict),
                 SidesOf(compared.target, compared.golden));
  html += fmt::format("<section id=\"finding\" class=\"{}\" data-part=\"{}\">\n",
                      compare::RunVerdictName(verdict), shown);
  if (found.first.pair >= 0) {
    html += Divergence(found, first == nullptr || results.size() == 1 ? "" : Place(*first));
    html += travelled;
  } else {
    html += any ? NoDivergence(found) : Element("h1", "", "Nothing could be compared."_t);
  }
  html += "</section>\n<details id=\"facts\">" + Tagged("summary", "", "What was compared"_t) +
          "\n" + Facts(found, compared.left_out) + OtherCalls(found) + "</details>\n" +
          Pairs(results);
  html += RoomForCalls();
  return PageOf(std::move(html), std::move(trends), parts);
}

PageText DumpPage(const Dump& dump, PagePart part) {
  int64_t non_finite = 0;
  std::string html = HeadOfPage("msprobe: " + dump.path);
  html += Header("ONE DUMP"_t, "dump", HtmlText(dump.path));
  html += "<section id=\"finding\" class=\"dump\" data-part=\"0\">\n";
  std::string_view first_name;
  for (const Leaf& leaf : dump.leaves) {
    if (leaf.counts->nan <= 0 && leaf.counts->pos_inf <= 0 && leaf.counts->neg_inf <= 0) continue;
    if (non_finite++ == 0) first_name = dump.records[leaf.record].name;
  }
  html += dump.records.empty() ? Element("h1", "calm",
                                         "This dump has no call: nothing was recorded, or the run "
                                         "ended before its first call."_t)
          : non_finite == 0
              ? Element("h1", "calm",
                        "{} calls, {} values; no NaN and no infinity was counted."_t(
                            dump.records.size(), dump.leaves.size()))
              : Element("p", "label", "First NaN or infinity"_t) +
                    NameElement("h1", "", first_name) +
                    Element("p", "why",
                            "{} of {} values have elements that are NaN or infinite."_t(
                                non_finite, dump.leaves.size()));
  html += "</section>\n" + DumpQuestions(dump);
  html += "<details id=\"facts\">" + Tagged("summary", "", "What was recorded"_t) + "\n<dl>\n";
  html += Term("recorded by"_t, dump.DialectName());
  html += Term("framework"_t, dump.framework);
  html += Term("task"_t, TaskName(dump.task));
  html += Term("level"_t, LevelName(dump.level));
  for (const auto& [key, text] : dump.provenance) {
    if (key != dump::kParallel) html += Term(key, text);
  }
  if (const Result<dump::ParallelLayout> layout = dump::ParallelLayoutOf(dump); layout.ok())
    html +=
        Term(dump::kParallel, fmt::format("{}", fmt::join(dump::ParallelLines(*layout), " | ")));
  html += Term("note"_t, dump.note);
  html += "</dl>\n</details>\n";
  html += RoomForCalls();
  return PageOf(std::move(html), {}, {&part, 1});
}

}  // namespace msprobe::report_page
