#include "cli/compare_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "cli/diff_analyze.h"
#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/compare/judge.h"
#include "engine/compare/report_json.h"
#include "engine/compare/report_terminal.h"
#include "engine/compare/summary.h"
#include "engine/compare/table_report.h"

namespace msprobe {
namespace {

// For choosing the rank whose report is shown in full.
int Badness(RowVerdict verdict) {
  switch (verdict) {
    case RowVerdict::kEqual:
      return 0;
    case RowVerdict::kNoise:
      return 1;
    case RowVerdict::kUnknown:
      return 2;
    case RowVerdict::kDiffers:
      return 3;
  }
  return 0;
}

std::string_view FirstDivergenceName(const Comparison& c) {
  if (c.first.pair < 0) return "";
  const RecordPair& pair = c.pairs[c.first.pair];
  return pair.target >= 0 ? c.target.records[pair.target].name : c.golden.records[pair.golden].name;
}

}  // namespace

std::string TimeStamp(long long seconds_since_epoch) {
  const std::time_t time = static_cast<std::time_t>(seconds_since_epoch);
  std::tm local{};
  ::localtime_r(&time, &local);
  char text[32];
  return std::string(text, std::strftime(text, sizeof(text), "%Y%m%d%H%M%S", &local));
}

CompareOutput::CompareOutput(CompareOutputOptions options, Console& console)
    : options_(std::move(options)), console_(console) {
  // Two comparisons within one second do not overwrite each other.
  long long now = std::time(nullptr);
  const auto taken = [&](const std::string& stamp) {
    Result<std::vector<std::string>> names = ListDirectory(options_.folder);
    return names.ok() && std::any_of(names->begin(), names->end(), [&](const std::string& name) {
             return name.find(stamp) != std::string::npos;
           });
  };
  while (taken(TimeStamp(now))) ++now;
  time_ = TimeStamp(now);
}

Status CompareOutput::Add(const DumpPair& pair, const Comparison& comparison) {
  const TableFormat table(comparison);
  if (options_.write_table) MSPROBE_RETURN_IF_ERROR(WriteTable(pair, table));
  if (options_.diff_analyze) {
    analysis_ += analysis_.empty() ? "{" : ",\n ";
    AppendDiffAnalysis(&analysis_, comparison, pair.rank);
  }
  if (options_.log_rows) LogRows(comparison);
  switch (options_.format) {
    case StdoutFormat::kTable:
      Report(pair, comparison);
      break;
    case StdoutFormat::kJson:
      if (options_.ranks > 1) {
        json_ += fmt::format("{}\"{}\": ", json_.empty() ? "" : ",\n", pair.rank);
      }
      json_ += JsonReport(comparison);
      while (!json_.empty() && json_.back() == '\n') json_.pop_back();
      break;
    case StdoutFormat::kCsv:
      return StreamTableCsv(table, [&](std::span<const std::string_view> pieces) {
        for (std::string_view piece : pieces) console_.Write(piece);
        return Status::Ok();
      });
  }
  return Status::Ok();
}

Status CompareOutput::WriteTable(const DumpPair& pair, const TableFormat& table) {
  MSPROBE_RETURN_IF_ERROR(MakeDirectories(options_.folder));
  const std::string rank = options_.ranks > 1 ? fmt::format("_rank{}", pair.rank) : "";
  const std::string name = fmt::format("{}compare_result{}_{}.{}", pair.debug_save ? "debug_" : "",
                                       rank, time_, options_.xlsx ? "xlsx" : "csv");
  const std::string path = JoinPath(options_.folder, name);
  const auto progress = [&](size_t done, size_t all) {
    console_.Progress("writing {}: {} of {} rows", name, done, all);
  };
  MSPROBE_RETURN_IF_ERROR(options_.xlsx ? WriteTableXlsx(table, path, progress)
                                        : WriteTableCsv(table, path, progress));
  files_ += fmt::format("written: {}\n", path);
  return Status::Ok();
}

void CompareOutput::Report(const DumpPair& pair, const Comparison& comparison) {
  const TerminalOptions look{.width = console_.width(), .colors = console_.colors()};
  if (options_.ranks == 1) {
    report_ = TerminalReport(comparison, look);
    return;
  }
  const RowVerdict verdict = Summarize(comparison).verdict;
  const std::string first = MakePrintable(FirstDivergenceName(comparison));
  console_.Print("rank {:<5} {}{}{}\n", pair.rank, VerdictName(verdict),
                 first.empty() ? "" : ", first at ", first);
  if (Badness(verdict) > worst_) {
    report_ = fmt::format("\nrank {}\n{}", pair.rank, TerminalReport(comparison, look));
    worst_ = Badness(verdict);
  }
}

void CompareOutput::LogRows(const Comparison& c) {
  std::string text;
  for (size_t i = 0; i < c.rows.size(); ++i) {
    const Row& row = c.rows[i];
    text += row.target >= 0 ? c.target.leaves[row.target].name : "N/A";
    text += " | ";
    text += row.golden >= 0 ? c.golden.leaves[row.golden].name : "N/A";
    text += " | ";
    text += VerdictName(c.measures[i].verdict);
    text += '\n';
    if (text.size() > (1u << 16)) console_.Warn(text), text.clear();
  }
  console_.Warn(text);
}

Status CompareOutput::Finish() {
  if (options_.diff_analyze) {
    MSPROBE_RETURN_IF_ERROR(MakeDirectories(options_.folder));
    const std::string path = JoinPath(options_.folder, fmt::format("diff_analyze_{}.json", time_));
    MSPROBE_RETURN_IF_ERROR(WriteFileAtomically(path, analysis_ + "}\n"));
    files_ += fmt::format("written: {}\n", path);
  }
  switch (options_.format) {
    case StdoutFormat::kTable:
      console_.Write(report_ + "\n" + files_);
      break;
    case StdoutFormat::kJson:
      console_.Write(options_.ranks > 1 ? "{\"ranks\": {" + json_ + "}}\n" : json_ + "\n");
      break;
    case StdoutFormat::kCsv:
      break;
  }
  return Status::Ok();
}

}  // namespace msprobe
