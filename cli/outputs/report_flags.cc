#include "cli/outputs/report_flags.h"

#include "engine/base/file.h"
#include "engine/compare/report/report_ci.h"
#include "engine/report_page/report_page.h"

namespace msprobe::cli {

void ReportFlags::AddSummaries(Flags& flags) {
  flags
      .Text("--junit", &junit,
            "also write JUnit XML to this file, with a test for each operation"_t)
      .TypeName("FILE");
  flags
      .Text("--markdown", &markdown,
            "also write a summary in Markdown to this file, as for the page of a CI job"_t)
      .TypeName("FILE");
}

void ReportFlags::AddFiles(Flags& flags) {
  AddSummaries(flags);
  flags
      .Text("--html", &html,
            "also write a page to this file: the finding, and all calls to walk through; a browser "
            "opens it, without a network"_t)
      .TypeName("FILE")
      .Common();
  flags
      .Text("--perfetto", &perfetto,
            "also write a trace to this file: calls, modules, verdicts and the error as tracks of "
            "ui.perfetto.dev"_t)
      .TypeName("FILE");
  flags
      .Text("--model-explorer", &model_explorer,
            "also write the calls as a graph to this file, for Google's Model Explorer; its name "
            "should end in .json"_t)
      .TypeName("FILE");
  flags
      .Text("--vis-db", &vis_db,
            "also write the modules and calls as a graph to this file, for the plugin "
            "tb_graph_ascend of TensorBoard; its name should end in .vis.db"_t)
      .TypeName("FILE");
}

std::vector<ReportFlags::Export> ReportFlags::Exports() const {
  std::vector<Export> wanted;
  if (!perfetto.empty()) wanted.push_back({exports::ExportFormat::kPerfetto, perfetto});
  if (!model_explorer.empty())
    wanted.push_back({exports::ExportFormat::kModelExplorer, model_explorer});
  return wanted;
}

void ReportFlags::AddLimits(Flags& flags) {
  flags
      .Texts("--fail-on", &fail_on,
             "exit with 1 if a value is error, warning, unmatched, unknown, differs, noise, "
             "or exceeds a limit such as MaxRelativeErr>0.01; separate several by commas"_t)
      .TypeName("CONDITION")
      .OneValueEach();
}

Result<compare::FailOn> ReportFlags::Limits() const {
  compare::FailOn limits;
  for (const std::string& text : fail_on) {
    MSPROBE_ASSIGN_OR_RETURN(compare::FailOn more, compare::ParseFailOn(text));
    limits.conditions.insert(limits.conditions.end(), more.conditions.begin(),
                             more.conditions.end());
  }
  return limits;
}

Status ReportFlags::Write(std::span<const compare::RankResult> results,
                          const compare::RanksCompared& compared,
                          std::span<report_page::PagePart> parts,
                          report_page::ParameterTrends* trends,
                          std::vector<std::string>* files) const {
  const auto write = [&](const std::string& path, const auto& text) {
    MSPROBE_RETURN_IF_ERROR(MakeDirectories(DirectoryName(path)));
    MSPROBE_RETURN_IF_ERROR(WriteFileAtomically(path, text));
    files->push_back(path);
    return Status::Ok();
  };
  if (!junit.empty()) MSPROBE_RETURN_IF_ERROR(write(junit, compare::JUnitReport(results)));
  if (!markdown.empty()) {
    MSPROBE_RETURN_IF_ERROR(write(markdown, compare::MarkdownReport(results, compared)));
  }
  if (!html.empty()) {
    MSPROBE_ASSIGN_OR_RETURN(report_page::PageText of_steps, trends->Html());
    MSPROBE_RETURN_IF_ERROR(
        write(html, report_page::ComparisonPage(results, compared, parts, std::move(of_steps))));
  }
  return Status::Ok();
}

}  // namespace msprobe::cli
