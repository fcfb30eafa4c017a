#include "cli/outputs/compare_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <numeric>
#include <system_error>

#include "cli/command_line/time_stamp.h"
#include "cli/command_line/verb.h"
#include "cli/outputs/diff_analyze.h"
#include "engine/base/file.h"
#include "engine/base/memory_size.h"
#include "engine/base/text.h"
#include "engine/checkpoint/compare_checkpoints.h"
#include "engine/compare/judge/judge.h"
#include "engine/compare/ranks/compiled_runs.h"
#include "engine/compare/ranks/drifting_ranks.h"
#include "engine/compare/ranks/wrong_updates.h"
#include "engine/compare/report/report_json.h"
#include "engine/compare/report/report_ranks.h"
#include "engine/compare/report/report_terminal.h"
#include "engine/compare/table/advisor.h"
#include "engine/compare/table/table_report.h"
#include "engine/results/result_folder.h"

namespace msprobe::cli {
namespace {

// The beginning of a step's document: how the report of all steps counts it.
void AppendStateOfStep(const compare::RankResult& r, int32_t first_wrong_step, std::string* text) {
  const bool inherited = !compare::InheritedFrom(r, first_wrong_step).empty();
  *text += fmt::format("{{\n  \"counts_as\": \"{}\",",
                       inherited ? "inherited" : compare::RunVerdictName(r.summary.verdict));
  if (inherited || r.rounding_of_step >= 0) {
    *text += fmt::format("\n  \"{}\": {},", inherited ? "inherited_from_step" : "rounding_of_step",
                         inherited ? first_wrong_step : r.rounding_of_step);
  }
  if (r.wrong_update_after >= 0) {
    *text +=
        fmt::format("\n  \"wrong_update\": {{\"after_step\": {}, \"why\": ", r.wrong_update_after);
    AppendJsonString(text, r.first.why.English());
    *text += "},";
  }
}

// `path`: of the table; "": none was written.
int64_t RowsLeftOut(const compare::TableFormat& table, const std::string& path) {
  return path.empty() ? 0 : static_cast<int64_t>(table.rows() - table.written_rows());
}

}  // namespace

CompareOutput::CompareOutput(CompareOutputOptions options, const PairedDumps& paired,
                             Console& console)
    : options_(std::move(options)), paired_(paired), console_(console) {
  // Later times are tried until no file has that name: two comparisons within one second must not
  // overwrite each other.
  long long now = std::time(nullptr);
  const auto taken = [&](const std::string& folder, const std::string& stamp) {
    Result<std::vector<std::string>> names = ListDirectory(folder);
    return names.ok() && std::any_of(names->begin(), names->end(), [&](const std::string& name) {
             return name.find(stamp) != std::string::npos;
           });
  };
  const std::string first = FolderOf(paired.pairs.front());
  while (taken(options_.folder, TimeStamp(now)) || taken(first, TimeStamp(now))) ++now;
  time_ = TimeStamp(now);
  kept_.resize(paired.pairs.size());
  for (const DumpPair& pair : paired.pairs) {
    weights_.push_back(static_cast<double>(FileSizes(pair) + 1));
    all_weights_ += weights_.back();
  }
  parts_.resize(weights_.size());
  if (options_.reports.html.empty()) return;
  std::vector<std::pair<int64_t, int64_t>> places;
  for (const DumpPair& pair : paired.pairs) places.emplace_back(pair.step, pair.rank);
  trends_ =
      std::make_unique<report_page::ParameterTrends>(places, DirectoryName(options_.reports.html));
}

void CompareOutput::PairIsAt(size_t index, double part) {
  // A pair that is compared once more, because its memory was too small, does not go back.
  const double more = weights_[index] * part - parts_[index];
  if (more <= 0) return;
  parts_[index] += more;
  all_done_ += more;
}

void CompareOutput::ShowPairs() {
  console_.ProgressOf("{} of {} pairs compared"_t(done_, kept_.size()),
                      static_cast<uint64_t>(all_done_), static_cast<uint64_t>(all_weights_));
}

void CompareOutput::Progress(size_t index, Phase phase, const Message& label, uint64_t done,
                             uint64_t all) {
  if (kept_.size() == 1) return console_.ProgressOf(label, done, all);
  // Of tensors, comparing takes most of the time; other pairs are short.
  constexpr double kBegin[] = {0, 0.1, 0.9}, kEnd[] = {0.1, 0.9, 1};
  const auto p = static_cast<size_t>(phase);
  const double part =
      all == 0 ? 0 : static_cast<double>(std::min(done, all)) / static_cast<double>(all);
  const std::lock_guard lock(mutex_);
  PairIsAt(index, kBegin[p] + part * (kEnd[p] - kBegin[p]));
  ShowPairs();
}

void CompareOutput::Add(size_t index, const Result<compare::Comparison>& comparison) {
  const DumpPair& pair = paired_.pairs[index];
  compare::RankResult& result = kept_[index].result;
  const Status status = comparison.ok() ? Keep(index, *comparison) : comparison.status();
  result.step = pair.step;
  result.rank = pair.rank;
  if (!status.ok()) {
    result.failed = status;
    result.target = pair.target;
    result.golden = pair.golden;
  }
  const std::lock_guard lock(mutex_);
  ++done_;
  if (kept_.size() == 1) return;
  PairIsAt(index, 1);
  ShowPairs();
}

void CompareOutput::Add(size_t index, compare::ComparedPair compared) {
  static_cast<compare::ComparedPair&>(kept_[index]) = std::move(compared);
}

Status CompareOutput::Keep(size_t index, const compare::Comparison& comparison) {
  const DumpPair& pair = paired_.pairs[index];
  Kept& kept = kept_[index];
  const compare::TableFormat table(comparison, compare::OptionsFor(comparison, options_.table));
  bool summarised = false;
  const auto summarise = [&] {
    kept.result = compare::SummarizeRank(comparison, pair.step, pair.rank);
    if (options_.format == StdoutFormat::kTable && kept_.size() == 1)
      kept.report = ReportOn(comparison, kept.result);
    summarised = true;
  };
  // One thread makes the summary and the report while the others write the table.
  std::string path;
  if (options_.write_table) NotWritten(index, WriteTable(index, table, summarise, &path));
  if (!summarised) summarise();
  kept.result.table = path;
  kept.result.rows_left_out = RowsLeftOut(table, path);
  if (options_.advisor) NotWritten(index, WriteAdvisor(pair, comparison, table));
  if (options_.diff_analyze) kept.analysis = DivergenceNode(comparison);
  if (options_.log_rows) LogRows(comparison, console_);
  if (!options_.reports.vis_db.empty()) NotWritten(index, AddToGraph(pair, comparison));
  if (options_.reports.NeedDetails() || options_.is_part)
    kept.result.details = compare::DetailsOf(comparison);
  if (!options_.reports.html.empty()) {
    kept.page = PageOf(index, comparison);
    NotWritten(index, trends_->Add(index, comparison));
  }
  for (const ReportFlags::Export& wanted : options_.reports.Exports()) {
    kept.exports.push_back(
        exports::MakeExporter(wanted.format)->Part(comparison, {index, pair.step, pair.rank}));
  }
  if (!options_.limits.empty()) {
    MSPROBE_ASSIGN_OR_RETURN(kept.result.hits, compare::CheckRows(options_.limits, table));
  }
  const auto json = [&](compare::JsonLists lists) {
    std::string text = compare::JsonReport(comparison, kept.result, lists);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
  };
  if (options_.format == StdoutFormat::kJson || options_.is_part)
    kept.json = json(compare::JsonLists::kShort);
  if (KeepsFinding()) kept.finding = json(compare::JsonLists::kWhole);
  if (options_.format != StdoutFormat::kCsv) return Status::Ok();
  return compare::StreamTableCsv(table, [&](std::span<const std::string_view> pieces) {
    for (std::string_view piece : pieces) console_.Write(piece);
    return Status::Ok();
  });
}

// Where an older tool's files are written, a script may expect these and no other.
bool CompareOutput::KeepsFinding() const {
  const auto keeps = [](const Kept& kept) { return !kept.finding.empty(); };
  if (options_.merges) return std::ranges::any_of(kept_, keeps);
  return options_.write_table && options_.table_file.empty() && options_.suffix.empty() &&
         options_.table.generation == compare::Generation::k26;
}

std::string CompareOutput::ReportOn(const compare::Comparison& comparison,
                                    const compare::Findings& found) const {
  if (checkpoint::IsCheckpointComparison(comparison))
    return checkpoint::CheckpointReport(comparison);
  constexpr int kLinesBehind = 3;  // a blank line, the file, the prompt
  return compare::TerminalReport(found, {.width = console_.width(),
                                         .lines = console_.height() - kLinesBehind,
                                         .colors = console_.colors(),
                                         .whole = !console_.is_terminal()});
}

// All pairs together take about as much of the page and of the time as a single pair may.
report_page::PagePart CompareOutput::PageOf(size_t index,
                                            const compare::Comparison& comparison) const {
  constexpr uint64_t kLeastValues = 256 << 10;
  report_page::PartOptions options{
      .index = index, .step = paired_.pairs[index].step, .rank = paired_.pairs[index].rank};
  options.value_bytes = std::max(options.value_bytes / kept_.size(), kLeastValues);
  options.tensor_bytes /= kept_.size();
  return report_page::PartOf(comparison, options);
}

void CompareOutput::NotWritten(size_t index, Status status) {
  Status& kept = kept_[index].unwritten;
  if (kept.ok()) kept = std::move(status);
}

std::string CompareOutput::FolderOf(const DumpPair& pair) const {
  return pair.step < 0 ? options_.folder
                       : JoinPath(options_.folder, fmt::format("step{}", pair.step));
}

// "_rank3", or "_rank3-rank3" as ptdbg_ascend names the table of two folders with ranks.
std::string CompareOutput::RankText(const DumpPair& pair) const {
  if (options_.table.generation == compare::Generation::kPtdbg && IsDirectory(options_.target)) {
    const std::string target = BaseName(DirectoryName(pair.target)),
                      golden = BaseName(DirectoryName(pair.golden));
    if (target.starts_with("rank") && golden.starts_with("rank"))
      return fmt::format("_{}-{}", target, golden);
  }
  return pair.rank >= 0 ? fmt::format("_rank{}", pair.rank) : "";
}

Status CompareOutput::MakeRoomFor(const std::string& path, bool makes_folder) {
  const std::lock_guard lock(mutex_);
  new_files_.Add(path);
  return makes_folder ? new_files_.Make(DirectoryName(path)) : Status::Ok();
}

Status CompareOutput::WriteTable(size_t index, const compare::TableFormat& table,
                                 const std::function<void()>& beside, std::string* written) {
  const DumpPair& pair = paired_.pairs[index];
  const std::string made =
      fmt::format("{}compare_result{}{}_{}.{}", pair.debug_save ? "debug_" : "", options_.suffix,
                  RankText(pair), time_, options_.xlsx ? "xlsx" : "csv");
  const std::string path =
      options_.table_file.empty() ? JoinPath(FolderOf(pair), made) : options_.table_file;
  const Message label = "writing {}"_t(BaseName(path));
  MSPROBE_RETURN_IF_ERROR(MakeRoomFor(path, options_.table_file.empty()));
  const auto progress = [&](size_t done, size_t all) {
    Progress(index, Phase::kWriting, label, done, all);
  };
  MSPROBE_RETURN_IF_ERROR(options_.xlsx ? compare::WriteTableXlsx(table, path, progress)
                                        : compare::WriteTableCsv(table, path, progress, beside));
  *written = path;
  return Status::Ok();
}

Status CompareOutput::WriteAdvisor(const DumpPair& pair, const compare::Comparison& comparison,
                                   const compare::TableFormat& table) {
  const std::string path = JoinPath(
      FolderOf(pair), fmt::format("advisor{}{}_{}.txt", options_.suffix, RankText(pair), time_));
  MSPROBE_RETURN_IF_ERROR(MakeRoomFor(path, true));
  MSPROBE_RETURN_IF_ERROR(WriteFileAtomically(
      path, compare::AdvisorText(comparison, table, options_.table.generation)));
  std::lock_guard lock(mutex_);
  files_.push_back(path);
  return Status::Ok();
}

void LogRows(const compare::Comparison& c, Console& console) {
  std::string text;
  for (size_t i = 0; i < c.rows.size(); ++i) {
    const compare::Row& row = c.rows[i];
    text += row.target >= 0 ? c.target.leaves[row.target].name : "N/A";
    text += " | ";
    text += row.golden >= 0 ? c.golden.leaves[row.golden].name : "N/A";
    text += " | ";
    text += compare::VerdictName(c.measures[i].verdict);
    text += '\n';
    if (text.size() > (1u << 16)) console.WriteError(text), text.clear();
  }
  console.WriteError(text);
}

Status CompareOutput::WriteFile(const std::string& folder, const std::string& name,
                                const std::string& text) {
  MSPROBE_RETURN_IF_ERROR(MakeDirectories(folder));
  const std::string path = JoinPath(folder, name);
  MSPROBE_RETURN_IF_ERROR(WriteFileAtomically(path, text));
  files_.push_back(path);
  return Status::Ok();
}

// Writes diff_analyze_{nanoseconds}.json, one for each step.
Status CompareOutput::WriteAnalyses() {
  std::timespec now{};
  (void)std::timespec_get(&now, TIME_UTC);
  const std::string name =
      fmt::format("diff_analyze_{}{:09}.json", static_cast<long long>(now.tv_sec), now.tv_nsec);
  for (const compare::StepOrigins& step : compare::OriginsOfSteps(results_)) {
    std::vector<std::string_view> nodes;
    for (const size_t i : step.results) nodes.push_back(kept_[i].analysis);
    MSPROBE_RETURN_IF_ERROR(
        WriteFile(FolderOf({.step = step.step}), name, DiffAnalysis(step, results_, nodes)));
  }
  return Status::Ok();
}

// "written: out/compare_result_rank0_TIME.csv and 63 more tables"
std::string CompareOutput::Written() const {
  std::string text;
  const auto add = [&](const Message& line) { text += MakePrintable(line.Shown()) + '\n'; };
  size_t tables = 0;
  int64_t rows = 0, left_out = 0;
  std::string table;
  for (const compare::RankResult& result : results_) {
    left_out += result.rows_left_out;
    rows = std::accumulate(result.summary.rows.begin(), result.summary.rows.end(), rows);
    if (!result.table.empty() && tables++ == 0) table = result.table;
  }
  if (tables > 1) add("written: {}"_t("{} and {} more like it"_t(table, tables - 1)));
  if (tables == 1) add("written: {}"_t(table));
  if (left_out > 0) {
    add("rows that agree are left out of the tables: {} of {}; --all-rows writes them"_t(left_out,
                                                                                         rows));
  }
  constexpr size_t kShown = 4;
  for (size_t i = 0; i < std::min(kShown, files_.size()); ++i) add("written: {}"_t(files_[i]));
  if (files_.size() > kShown) add("written: {}"_t("{} more files"_t(files_.size() - kShown)));
  return text;
}

void CompareOutput::PrintReport() {
  std::string written = Written();
  if (!written.empty()) written.insert(0, "\n");
  for (const compare::RankResult& r : results_) {
    const Message compiled = compare::DescribeCompiledRuns(r.target, r.golden);
    if (compiled.empty()) continue;
    console_.Tell(compiled);
    console_.Write("\n");
    break;
  }
  if (results_.size() == 1 && !kept_[0].report.empty()) {
    std::string left_out;
    for (const Message& what : paired_.left_out) {
      left_out += MakePrintable("not compared: {}"_t(what).Shown()) + "\n";
    }
    return console_.Write(kept_[0].report + left_out + written);
  }
  const auto lines = static_cast<int>(std::count(written.begin(), written.end(), '\n'));
  console_.Write(compare::RanksReport(results_,
                                      {options_.target, options_.golden, paired_.left_out},
                                      {.width = console_.width(),
                                       .lines = console_.height() - 1 - lines,
                                       .colors = console_.colors(),
                                       .whole = !console_.is_terminal()}));
  console_.Write(written);
}

std::string CompareOutput::Json(std::string Kept::*document) const {
  if (kept_.size() == 1) return kept_[0].*document + "\n";
  std::string text = fmt::format("{{\"first\": {},\n", compare::FirstPlaceJson(results_));
  if (const auto drift = compare::FindDrift(results_))
    text += fmt::format("\"drift\": {},\n", compare::DriftJson(*drift));
  int step = -2;
  const int32_t first_wrong_step = compare::FirstWrongStep(results_);
  for (size_t i = 0; i < kept_.size(); ++i) {
    const compare::RankResult& r = results_[i];
    if (r.step != step) {
      if (r.step >= 0)
        text += fmt::format("{}\"{}\": {{", i == 0 ? "\"steps\": {" : "}},\n", r.step);
      text += "\"ranks\": {";
      step = r.step;
    } else {
      text += ",\n";
    }
    text += fmt::format("\"{}\": ", r.rank < 0 ? "" : fmt::format("{}", r.rank));
    if (r.failed.ok()) {
      std::string_view json = kept_[i].*document;
      if (r.step >= 0 && json.starts_with('{')) {
        json.remove_prefix(1);
        AppendStateOfStep(r, first_wrong_step, &text);
      }
      text += json;
      continue;
    }
    text += "{\"error\": ";
    AppendJsonString(&text, r.failed.message());
    text += '}';
  }
  return text + (step >= 0 ? "}}}}\n" : "}}\n");
}

Status CompareOutput::WriteExports() {
  const int32_t first_wrong_step = compare::FirstWrongStep(results_);
  const std::vector<ReportFlags::Export> wanted = options_.reports.Exports();
  for (size_t i = 0; i < wanted.size(); ++i) {
    std::vector<std::string> parts;
    for (size_t pair = 0; pair < kept_.size(); ++pair) {
      std::string& part = parts.emplace_back();
      if (i >= kept_[pair].exports.size()) continue;  // it could not be compared
      part =
          std::move(kept_[pair].exports[i]).In(compare::StateOf(results_[pair], first_wrong_step));
    }
    const std::string& path = wanted[i].path;
    MSPROBE_RETURN_IF_ERROR(MakeDirectories(DirectoryName(path)));
    MSPROBE_RETURN_IF_ERROR(
        WriteFileAtomically(path, exports::MakeExporter(wanted[i].format)->File(parts)));
    files_.push_back(path);
  }
  return Status::Ok();
}

Status CompareOutput::AddToGraph(const DumpPair& pair, const compare::Comparison& comparison) {
  {
    const std::lock_guard lock(mutex_);
    const std::string& path = options_.reports.vis_db;
    if (graph_ == nullptr) {
      MSPROBE_ASSIGN_OR_RETURN(graph_, exports::VisDb::Create(path, {}));
    }
  }
  return graph_->AddComparison(comparison, {.step = pair.step, .rank = pair.rank});
}

Status CompareOutput::WriteGraph() {
  if (graph_ == nullptr || graph_->nodes() == 0) return Status::Ok();
  graph_->Judge(results_);
  MSPROBE_RETURN_IF_ERROR(graph_->Finish());
  files_.push_back(options_.reports.vis_db);
  console_.Warn(LargeGraphWarning(options_.reports.vis_db));
  return Status::Ok();
}

Message LargeGraphWarning(const std::string& path) {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  if (error || size <= exports::kLargeVisDb) return {};
  return "{} has {}: the pages of TensorBoard become slow with more than {}; fewer ranks or steps "
         "(--rank, --step) make a smaller file"_t(path, MemorySizeText(size),
                                                  MemorySizeText(exports::kLargeVisDb));
}

Status CompareOutput::WriteFilesOnAllPairs() {
  if (options_.diff_analyze) MSPROBE_RETURN_IF_ERROR(WriteAnalyses());
  if (results_.size() > 1 && options_.write_table) {
    MSPROBE_RETURN_IF_ERROR(WriteFile(options_.folder, fmt::format("compare_summary_{}.csv", time_),
                                      compare::RankSummaryCsv(results_)));
  }
  if (KeepsFinding()) {
    MSPROBE_RETURN_IF_ERROR(MakeDirectories(options_.folder));
    const std::string name = fmt::format("{}{}.json", results::kFindingFile, time_);
    MSPROBE_RETURN_IF_ERROR(
        WriteFileAtomically(JoinPath(options_.folder, name), Json(&Kept::finding)));
  }
  MSPROBE_RETURN_IF_ERROR(WriteExports());
  MSPROBE_RETURN_IF_ERROR(WriteGraph());
  std::vector<report_page::PagePart> parts;
  if (!options_.reports.html.empty()) {
    for (Kept& kept : kept_) parts.push_back(std::move(kept.page));
  }
  return options_.reports.Write(results_, {options_.target, options_.golden, paired_.left_out},
                                parts, trends_.get(), &files_);
}

Status CompareOutput::Finish() {
  for (Kept& kept : kept_) results_.push_back(std::move(kept.result));
  compare::JudgeSteps(results_);
  if (results_.size() == 1 && !results_[0].failed.ok()) return results_[0].failed;
  // What was found may have taken hours: it is printed even if no file can be written.
  Status unwritten;
  for (const Kept& kept : kept_) {
    if (unwritten.ok()) unwritten = kept.unwritten;
  }
  Status on_all_pairs;
  if (HasResult()) {
    new_files_.Keep();
    on_all_pairs = WriteFilesOnAllPairs();
  } else {
    RemoveFiles();
  }
  if (unwritten.ok()) unwritten = on_all_pairs;
  if (options_.format == StdoutFormat::kTable) PrintReport();
  if (options_.format == StdoutFormat::kJson) console_.Write(Json(&Kept::json));
  for (const compare::RankResult& r : results_) {
    if (!r.failed.ok()) console_.Error(r.failed);
    for (const compare::FailHit& hit : r.hits) {
      const Message rank = r.rank < 0 ? Message() : "rank {}"_t(r.rank);
      const Message said = Message::Joined({rank, compare::DescribeHit(hit)}, ": ");
      console_.Warn("fail-on: {}"_t(said));
    }
  }
  if (unwritten.ok()) return unwritten;
  return std::move(unwritten).Hint(
      "what is printed is complete; -o names another folder for the files"_t);
}

Status CompareOutput::FinishPart(compare::ComparedPart part) {
  Status unwritten;
  for (size_t i = 0; i < kept_.size(); ++i) {
    const DumpPair& pair = paired_.pairs[i];
    compare::ComparedPair& kept = part.compared.emplace_back(std::move(kept_[i]));
    kept.step = pair.step, kept.rank = pair.rank;
    kept.target = pair.target, kept.golden = pair.golden;
    results_.push_back(kept.result);
    if (!kept.result.failed.ok()) console_.Error(kept.result.failed);
    if (unwritten.ok()) unwritten = kept.unwritten;
  }
  MSPROBE_RETURN_IF_ERROR(compare::WritePart(part, options_.folder));
  new_files_.Keep();
  console_.Tell("part {} of {}: {} of {} pairs compared"_t(part.index, part.count, kept_.size(),
                                                           part.pairs.size()));
  console_.Tell("next, when all parts are there: msprobe merge_result -i {} -o {}"_t(
      options_.folder, options_.folder));
  return unwritten;
}

Result<int> CompareOutput::ExitCode(bool verdict_counts) const {
  if (!complete()) return kExitError;
  MSPROBE_RETURN_IF_ERROR(CheckSomethingWasJudged());
  return (!verdict_counts || Agrees()) && IsWithinLimits() ? kExitOk : kExitDiffers;
}

bool CompareOutput::Agrees() const { return compare::Agrees(compare::VerdictOver(results_)); }

bool CompareOutput::IsWithinLimits() const {
  return std::all_of(results_.begin(), results_.end(),
                     [](const compare::RankResult& r) { return r.hits.empty(); });
}

void CompareOutput::RemoveFiles() {
  new_files_ = NewFolder();
  files_.clear();
  for (compare::RankResult& result : results_) {
    result.table.clear();
    result.rows_left_out = 0;
  }
}

bool CompareOutput::HasResult() const {
  return std::any_of(results_.begin(), results_.end(), [&](const compare::RankResult& r) {
    return r.failed.ok() && (options_.allow_nothing || r.judged.ok());
  });
}

Status CompareOutput::CheckSomethingWasJudged() const {
  if (options_.allow_nothing || HasResult()) return Status::Ok();
  if (results_.size() == 1) return results_[0].judged;
  return InvalidArgument("none of {} pairs of dumps could be judged; the first: {}"_t(
                             results_.size(), results_[0].judged.AsMessage()))
      .Hint(results_[0].judged.HintAsMessage());
}

bool CompareOutput::complete() const {
  return std::all_of(results_.begin(), results_.end(),
                     [](const compare::RankResult& r) { return r.failed.ok(); });
}

}  // namespace msprobe::cli
