#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/verbs.h"
#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/compare/explain/evidence.h"
#include "engine/compare/ranks/rank_result.h"
#include "engine/compare/ranks/wrong_updates.h"
#include "engine/dump/read/reader.h"
#include "engine/gradients/recorded_norms.h"
#include "engine/gradients/written_comparison.h"
#include "engine/report_page/gradient_page.h"
#include "engine/report_page/parameter_trends.h"
#include "engine/report_page/report_page.h"
#include "engine/results/finding_json.h"
#include "engine/results/result_folder.h"
#include "engine/results/result_table.h"

namespace msprobe::cli {
namespace {

// The page is written from what an earlier comparison left, or from a dump alone.
class Report : public Verb {
 public:
  std::string_view name() const override { return "report"; }
  Message summary() const override {
    return "write the page of an earlier comparison, of a dump, or of gradients"_t;
  }

  void AddFlags(Flags& flags) override {
    flags
        .Text("source", &source_,
              "folder with result tables, a table (.csv, .xlsx) of any generation, the JSON of "
              "compare --format json, a dump, a recording of task grad_probe, or the output of "
              "grad_compare"_t)
        .TypeName("PATH")
        .Required();
    flags.Text("-o,--output,--html", &page_, "the page; any browser opens it, without a network"_t)
        .TypeName("FILE")
        .Usual()
        .ShowDefault();
    flags.Footer(
        "A table has the values of all calls, the JSON only the calls that differ. The page of a\n"
        "dump is that of msprobe show DUMP --html FILE.\n"
        "  msprobe report output -o report.html"_t);
  }

  Result<int> Run(Console& out) override {
    if (!Exists(source_)) {
      return NotFound(source_).Hint("pass the folder that -o of msprobe compare named"_t);
    }
    MSPROBE_ASSIGN_OR_RETURN(const report_page::PageText html, Page());
    MSPROBE_RETURN_IF_ERROR(MakeDirectories(DirectoryName(page_)));
    MSPROBE_RETURN_IF_ERROR(WriteFileAtomically(page_, html));
    out.Tell("written: {}"_t(page_));
    return kExitOk;
  }

 private:
  Result<report_page::PageText> Page() {
    if (IsDirectory(source_)) {
      MSPROBE_ASSIGN_OR_RETURN(const results::ResultFolder found,
                               results::FindResultTables(source_));
      if (!found.tables.empty()) return PageOfTables(found);
      if (gradients::IsRecording(source_)) return PageOfRecording();
      if (gradients::IsWrittenComparison(source_)) return PageOfSimilarities();
      Result<report_page::PageText> page = PageOfDump();
      if (page.ok()) return page;
      return std::move(page).status().Hint(
          "expected a folder with compare_result_TIME.csv or with one dump.json; of several ranks "
          "and steps, msprobe compare TARGET GOLDEN --html FILE writes one page"_t);
    }
    bool table = source_.ends_with(".csv") || source_.ends_with(".xlsx"), json = false;
    {
      MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(source_));
      // A workbook of any name; torch.save writes archives, too.
      const bool tensors = source_.ends_with(".pt") || source_.ends_with(".pth") ||
                           source_.ends_with(".bin") || source_.ends_with(".ckpt");
      table = table || (!tensors && file.bytes().starts_with("PK\x03\x04"));
      json = !table && results::LooksLikeFindingJson(file.bytes());
    }
    if (table && gradients::IsWrittenComparison(source_)) return PageOfSimilarities();
    if (table) return PageOfTables(results::FindOneTable(source_));
    return json ? PageOfJson() : PageOfDump();
  }

  Result<report_page::PageText> PageOfRecording() const {
    MSPROBE_ASSIGN_OR_RETURN(const gradients::Recording recording,
                             gradients::FindRecording(source_));
    return report_page::GradientNormsPage(recording);
  }

  Result<report_page::PageText> PageOfSimilarities() const {
    MSPROBE_ASSIGN_OR_RETURN(const gradients::GradientComparison found,
                             gradients::ReadWrittenComparison(source_));
    return report_page::GradientPage(found, source_, "");
  }

  Result<report_page::PageText> PageOfDump() const {
    MSPROBE_ASSIGN_OR_RETURN(const Dump dump, dump::ReadDump(source_));
    return report_page::DumpPage(dump, report_page::PartOf(dump, {}));
  }

  Status Add(const compare::Comparison& c, size_t parts, int32_t step, int32_t rank) {
    constexpr uint64_t kLeastValues = 256 << 10;
    report_page::PartOptions options{.index = parts_.size(), .step = step, .rank = rank};
    options.value_bytes = std::max(options.value_bytes / parts, kLeastValues);
    parts_.push_back(report_page::PartOf(c, options));
    return trends_->Add(options.index, c);
  }

  // The step and the rank of each part of the page.
  void BeginTrends(std::span<const std::pair<int64_t, int64_t>> pairs) {
    trends_ = std::make_unique<report_page::ParameterTrends>(pairs, DirectoryName(page_));
  }

  Result<report_page::PageText> PageOfComparison(const compare::RanksCompared& compared) {
    MSPROBE_ASSIGN_OR_RETURN(report_page::PageText trends, trends_->Html());
    return report_page::ComparisonPage(results_, compared, parts_, std::move(trends));
  }

  // What `compare` itself said of the calls of a table, and a table alone does not tell.
  static compare::RankResult SaidOf(const results::JsonFinding& said, int32_t step, int32_t rank,
                                    compare::Comparison* c) {
    said.stated.Mark(c);
    PlaceFirst(said.result, c);
    compare::RankResult result = compare::SummarizeRank(*c, step, rank), with = said.result;
    with.others = std::move(result.others), with.more_others = result.more_others;
    // What is said of a document alone.
    std::erase(with.not_observed, results::OnlyCallsThatDiffer());
    const std::array<int64_t, 4>& counts = with.summary.rows;
    const int64_t rows = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    if (const int64_t left_out = rows - static_cast<int64_t>(c->rows.size()); left_out > 0) {
      with.not_observed.push_back(
          "{} of {} rows agree and are not in the table: msprobe compare --all-rows writes them"_t(
              left_out, rows));
    }
    return with;
  }

  // The first divergence at its call in the table, which may be one that only one run has.
  static void PlaceFirst(const compare::RankResult& said, compare::Comparison* c) {
    if (said.first.pair < 0 && said.rounding_of_step < 0) c->first = {};
    for (int32_t p = 0; p < static_cast<int32_t>(c->pairs.size()); ++p) {
      if (compare::EntryName(*c, p) != said.first_name) continue;
      const int32_t row = c->first.pair == p ? c->first.row : -1;
      c->first = said.first;
      c->first.pair = p, c->first.row = row;
      return;
    }
  }

  Result<report_page::PageText> PageOfTables(const results::ResultFolder& found) {
    std::vector<results::JsonFinding> said;
    if (!found.finding.empty()) {
      MSPROBE_ASSIGN_OR_RETURN(said, results::ReadFindingJson(found.finding));
    }
    const auto of_pair = [&](const results::ResultTable& table) -> const results::JsonFinding* {
      if (said.size() == 1 && found.tables.size() == 1) return &said[0];
      for (const results::JsonFinding& one : said) {
        if (one.result.step == table.step && one.result.rank == table.rank) return &one;
      }
      return nullptr;
    };
    std::vector<std::pair<int64_t, int64_t>> pairs;
    for (const results::ResultTable& table : found.tables)
      pairs.emplace_back(table.step, table.rank);
    BeginTrends(pairs);
    for (const results::ResultTable& table : found.tables) {
      Result<compare::Comparison> c = results::ReadResultTable(table.path);
      if (!c.ok() && found.tables.size() == 1) return c.status();
      if (c.ok()) {
        const results::JsonFinding* own = of_pair(table);
        if (own != nullptr && !own->result.failed.ok()) own = nullptr;
        compare::RankResult& result = results_.emplace_back(
            own != nullptr ? SaidOf(*own, table.step, table.rank, &*c)
                           : compare::SummarizeRank(*c, table.step, table.rank));
        result.step = table.step, result.rank = table.rank;
        MSPROBE_RETURN_IF_ERROR(Add(*c, found.tables.size(), table.step, table.rank));
        continue;
      }
      compare::RankResult& failed = results_.emplace_back();
      failed.step = table.step, failed.rank = table.rank, failed.failed = c.status();
      parts_.emplace_back();
    }
    if (said.empty()) compare::JudgeSteps(results_);
    const std::string& named = found.tables.size() == 1 ? found.tables[0].path : source_;
    return PageOfComparison(
        said.size() == 1
            ? SidesOf(said[0].result, found.notes)
            : compare::RanksCompared{named, "", {found.notes.begin(), found.notes.end()}});
  }

  // The folders of the two dumps, as they are typed.
  static compare::RanksCompared SidesOf(const compare::RankResult& result,
                                        const std::vector<Message>& notes) {
    const auto folder = [](const std::string& dump) {
      return BaseName(dump) == "dump.json" ? DirectoryName(dump) : dump;
    };
    return {folder(result.target_side.dump),
            folder(result.golden_side.dump),
            {notes.begin(), notes.end()}};
  }

  Result<report_page::PageText> PageOfJson() {
    MSPROBE_ASSIGN_OR_RETURN(std::vector<results::JsonFinding> found,
                             results::ReadFindingJson(source_));
    std::vector<std::pair<int64_t, int64_t>> pairs;
    for (const results::JsonFinding& finding : found)
      pairs.emplace_back(finding.result.step, finding.result.rank);
    BeginTrends(pairs);
    for (results::JsonFinding& finding : found) {
      const compare::RankResult& result = finding.result;
      if (result.failed.ok()) {
        MSPROBE_RETURN_IF_ERROR(Add(finding.calls, found.size(), result.step, result.rank));
      } else {
        parts_.emplace_back();
      }
      results_.push_back(std::move(finding.result));
    }
    const compare::RankResult& first = results_[0];
    const bool one = results_.size() == 1 && first.failed.ok();
    return PageOfComparison(
        {one ? first.target_side.dump : source_, one ? first.golden_side.dump : "", {}});
  }

  std::string source_, page_ = "report.html";
  std::vector<compare::RankResult> results_;
  std::vector<report_page::PagePart> parts_;
  std::unique_ptr<report_page::ParameterTrends> trends_;  // of parts_
};

}  // namespace

std::unique_ptr<Verb> MakeReportVerb() { return std::make_unique<Report>(); }

}  // namespace msprobe::cli
