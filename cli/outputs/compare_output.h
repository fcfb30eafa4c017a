// The output of `msprobe compare`: a table file for each pair of dumps, files on all pairs, and the
// text on the terminal.
//
//   CompareOutput output(options, paired, console);
//   ForEachPair(paired.pairs, false, memory, [&](size_t i, uint64_t memory_of_pair) {
//     output.Add(i, ComparePair(paired.pairs[i], memory_of_pair));
//     return true;                         // false: it needs more memory; once more, alone
//   });
//   MSPROBE_RETURN_IF_ERROR(output.Finish());
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command_line/console.h"
#include "cli/inputs/compare_inputs.h"
#include "cli/outputs/report_flags.h"
#include "engine/base/messages/message.h"
#include "engine/base/writable_folder.h"
#include "engine/compare/model/comparison.h"
#include "engine/compare/ranks/compared_part.h"
#include "engine/compare/ranks/rank_result.h"
#include "engine/compare/table/table_options.h"
#include "engine/exports/databases/vis_db.h"
#include "engine/exports/exporter.h"
#include "engine/report_page/page_part.h"

namespace msprobe::compare {
class TableFormat;
}

namespace msprobe::cli {

enum class StdoutFormat { kTable, kJson, kCsv };

struct CompareOutputOptions {
  std::string target, golden;  // as they were typed
  std::string folder;
  StdoutFormat format = StdoutFormat::kTable;
  std::string table_file;  // path of the table; "": compare_result_TIME.csv in `folder`
  bool write_table = true;
  bool xlsx = false;
  bool diff_analyze = false;
  bool log_rows = false;
  bool allow_nothing = false;  // files are written although no value was judged
  bool advisor = false;        // write advisor_TIME.txt
  bool merges = false;         // other processes have compared the pairs, and wrote their tables
  bool is_part = false;        // FinishPart ends it: all is kept that merge_result may ask for
  std::string suffix;          // part of file names, after compare_result and advisor
  compare::TableOptions table;
  ReportFlags reports;
  compare::FailOn limits;
};

class CompareOutput {
 public:
  // `paired` outlives the output.
  CompareOutput(CompareOutputOptions options, const PairedDumps& paired, Console& console);

  // Writes the table of pair `index`, and keeps what Finish needs, also when the comparison failed.
  // Thread-safe for different pairs.
  void Add(size_t index, const Result<compare::Comparison>& comparison);
  // The same for a pair that another process has compared, and of which it wrote the table.
  void Add(size_t index, compare::ComparedPair compared);
  // A file about pair `index` could not be written. The pair counts as compared: Finish prints what
  // was found, and returns this error. Thread-safe for different pairs.
  void NotWritten(size_t index, Status status);
  // Writes the files on all pairs and prints the summary. When no value of any pair was judged, no
  // file and no new folder is left, except with `allow_nothing`. Errors: when there is only
  // one pair and it failed, its error; else, after everything was printed, that of the first file
  // that could not be written.
  Status Finish();

  // In place of Finish: writes what was found as a part of a comparison, for merge_result, and says
  // so. `part`: all but `compared`. Errors: that of the part, else of the first file about a pair.
  Status FinishPart(compare::ComparedPart part);

  bool complete() const;  // every pair could be compared
  // After Finish: kExitError where a pair could not be compared; kExitDiffers where a condition of
  // --fail-on is met, or, if the verdict counts, not everything is equal or within rounding. An
  // error when not one value of any pair was judged; not with `allow_nothing`.
  Result<int> ExitCode(bool verdict_counts) const;
  // The parts of the work on a pair, in their order.
  enum class Phase { kReading, kComparing, kWriting };
  // `label` says what is done, `done` of `all` how far this phase of the pair is. Thread-safe. With
  // several pairs, the line is about all of them.
  void Progress(size_t index, Phase phase, const Message& label, uint64_t done, uint64_t all);

 private:
  struct Kept : compare::ComparedPair {
    std::string report;                        // of a single pair
    report_page::PagePart page;                // of --html
    std::vector<exports::ExportPart> exports;  // of reports.Exports()
  };
  Status Keep(size_t index, const compare::Comparison& comparison);
  bool Agrees() const;
  bool IsWithinLimits() const;  // no condition of --fail-on is met
  Status CheckSomethingWasJudged() const;
  bool HasResult() const;  // a pair was compared, and something of it judged or that was not asked
  void RemoveFiles();      // that were written about single pairs
  // Makes the folder of a file about a pair; without a result both are removed.
  Status MakeRoomFor(const std::string& path, bool makes_folder);
  std::string ReportOn(const compare::Comparison& comparison, const compare::Findings& found) const;
  report_page::PagePart PageOf(size_t index, const compare::Comparison& comparison) const;
  std::string RankText(const DumpPair& pair) const;
  // Sets `written` to the path. `beside`: see WriteTableCsv; it may not have been called.
  Status WriteTable(size_t index, const compare::TableFormat& table,
                    const std::function<void()>& beside, std::string* written);
  Status WriteFile(const std::string& folder, const std::string& name, const std::string& text);
  Status WriteAnalyses();
  Status WriteFilesOnAllPairs();
  void PairIsAt(size_t index, double part);  // from 0 to 1; with mutex_ held
  void ShowPairs();                          // with mutex_ held
  void PrintReport();
  // Whether the document of --format json lies beside the tables, for `msprobe report`.
  bool KeepsFinding() const;
  std::string Json(std::string Kept::*document) const;  // of all pairs
  Status WriteAdvisor(const DumpPair& pair, const compare::Comparison& comparison,
                      const compare::TableFormat& table);
  std::string FolderOf(const DumpPair& pair) const;
  std::string Written() const;
  Status WriteExports();
  Status AddToGraph(const DumpPair& pair, const compare::Comparison& comparison);
  Status WriteGraph();

  CompareOutputOptions options_;
  const PairedDumps& paired_;
  Console& console_;
  std::string time_;                     // of the file names: 20260102030405
  std::mutex mutex_;                     // guards the members below until Finish
  size_t done_ = 0;                      // pairs
  std::vector<double> weights_, parts_;  // of each pair: bytes of its files, and how many are done
  double all_weights_ = 0, all_done_ = 0;
  NewFolder new_files_;  // about single pairs
  std::vector<Kept> kept_;
  std::vector<compare::RankResult> results_;              // of kept_, after Finish
  std::unique_ptr<report_page::ParameterTrends> trends_;  // of reports.html
  std::unique_ptr<exports::VisDb> graph_;                 // of reports.vis_db
  std::vector<std::string> files_;                        // paths of the files on all pairs
};

// Prints the verdict of each row on standard error.
void LogRows(const compare::Comparison& comparison, Console& console);

// A sentence when the file is larger than TensorBoard's plugin opens quickly; else no text.
Message LargeGraphWarning(const std::string& path);

}  // namespace msprobe::cli
