// What `msprobe compare` leaves behind: a table file per rank, diff_analyze_TIME.json, and what is
// printed.
//
//   CompareOutput output(options, console);
//   for (...) MSPROBE_RETURN_IF_ERROR(output.Add(pair, comparison));
//   MSPROBE_RETURN_IF_ERROR(output.Finish());
#pragma once

#include <string>
#include <string_view>

#include "cli/compare_inputs.h"
#include "cli/console.h"
#include "engine/compare/comparison.h"

namespace msprobe {

class TableFormat;

enum class StdoutFormat { kTable, kJson, kCsv };

struct CompareOutputOptions {
  std::string folder;
  StdoutFormat format = StdoutFormat::kTable;
  bool write_table = true;
  bool xlsx = false;
  bool diff_analyze = false;
  bool log_rows = false;
  size_t ranks = 1;
};

class CompareOutput {
 public:
  CompareOutput(CompareOutputOptions options, Console& console);

  // Writes the rank's table and prints, or keeps for Finish, what there is to say about it.
  Status Add(const DumpPair& pair, const Comparison& comparison);
  Status Finish();

 private:
  Status WriteTable(const DumpPair& pair, const TableFormat& table);
  void Report(const DumpPair& pair, const Comparison& comparison);
  void LogRows(const Comparison& comparison);

  CompareOutputOptions options_;
  Console& console_;
  std::string time_;  // of the file names: 20260102030405
  std::string json_, analysis_;
  std::string report_;  // of the first rank that has something to say, of several
  std::string files_;   // "written: ..." lines
  int worst_ = -1;      // of the ranks so far: how bad the one in report_ is
};

// "20260102030405", local time: the form of the earlier tools' file names.
std::string TimeStamp(long long seconds_since_epoch);

}  // namespace msprobe
