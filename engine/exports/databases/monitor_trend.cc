#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>

#include "engine/base/file.h"
#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/base/threads.h"
#include "engine/exports/databases/replace_text.h"
#include "engine/exports/databases/trend_db.h"
#include "engine/exports/databases/trend_sources.h"
#include "engine/formats/tables/table_file.h"
#include "engine/model/names.h"

namespace msprobe::exports {
namespace {

// Columns that become statistics, in the order of trend_data.
constexpr std::array<std::string_view, 14> kStatistics = {
    "norm",        "max", "min",         "mean",  "zeros",    "nans",  "entropy",
    "softmax_max", "sr",  "kernel_norm", "std_x", "jacobian", "proxy", "token_similarity"};

struct MonitorFile {
  std::string path, metric;
  int64_t rank = 0;
  std::vector<std::string> header;
  std::vector<int> statistics;  // of each column, index into kStatistics; -1: none
  int vpp = -1, name = -1, step = -1, micro_step = -1;  // columns
  int64_t passes = 1;
  Status failed;
};

// "Nov24_09-30-00-rank3-1a2b3c4d" is 3; -1: no folder of the monitor.
int64_t RankOfFolder(std::string_view name) {
  const size_t at = name.find("-rank");
  if (at == std::string_view::npos) return -1;
  const std::string_view rest = name.substr(at + 5);
  return NumberAfter(rest.substr(0, rest.find('-')), "");
}

// "grad_reduced" of "grad_reduced_0-9.csv"; "": another file.
std::string_view MetricOfFile(std::string_view name) {
  if (!name.ends_with(".csv")) return "";
  name.remove_suffix(4);
  const size_t at = name.rfind('_');
  if (at == std::string_view::npos || at == 0) return "";
  const std::string_view steps = name.substr(at + 1), metric = name.substr(0, at);
  const size_t dash = steps.find('-');
  const bool numbers = dash != std::string_view::npos &&
                       NumberAfter(steps.substr(0, dash), "") >= 0 &&
                       NumberAfter(steps.substr(dash + 1), "") >= 0;
  // The name becomes the name of a column.
  const bool plain = std::all_of(metric.begin(), metric.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
  return numbers && plain && !(metric[0] >= '0' && metric[0] <= '9') ? metric : "";
}

double Number(std::string_view text) {
  double value = std::numeric_limits<double>::quiet_NaN();
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  return whole ? value : std::numeric_limits<double>::quiet_NaN();
}

std::string_view Cell(const formats::TableLine& line, int column) {
  if (column < 0 || static_cast<size_t>(column) >= line.cells.size()) return "";
  return line.cells[static_cast<size_t>(column)];
}

void ReadHeader(const formats::TableLine& line, MonitorFile* file) {
  for (size_t i = 0; i < line.cells.size(); ++i) {
    const std::string_view name = line.cells[i];
    const auto column = static_cast<int>(i);
    if (name == "vpp_stage") file->vpp = column;
    if (name == "name") file->name = column;
    if (name == "step") file->step = column;
    if (name == "micro_step") file->micro_step = column;
    const auto* const found = std::find(kStatistics.begin(), kStatistics.end(), name);
    const bool known = found != kStatistics.end();
    file->statistics.push_back(known ? static_cast<int>(found - kStatistics.begin()) : -1);
  }
}

// Reads the header, and how many passes a step has.
void LookAt(MonitorFile* file) {
  const Status read = formats::ReadTableFile(file->path, [&](const formats::TableLine& line) {
    if (file->statistics.empty()) {
      ReadHeader(line, file);
      return file->micro_step >= 0;
    }
    const int64_t pass = NumberAfter(Cell(line, file->micro_step), "");
    constexpr int64_t kMost = 1000000;
    if (pass < kMost) file->passes = std::max(file->passes, pass + 1);
    return true;
  });
  if (file->name < 0 || file->step < 0) {
    file->failed = !read.ok() ? read
                              : InvalidDump(file->path)
                                    .Expected("a header with name and step"_t)
                                    .Found("another one"_t);
  } else {
    file->failed = read;
  }
}

Result<std::vector<MonitorFile>> FindFiles(const std::string& folder) {
  std::vector<MonitorFile> files;
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<std::string> ranks, ListDirectory(folder));
  for (const std::string& name : ranks) {
    const int64_t rank = RankOfFolder(name);
    const std::string of_rank = JoinPath(folder, name);
    if (rank < 0 || !IsDirectory(of_rank)) continue;
    MSPROBE_ASSIGN_OR_RETURN(std::vector<std::string> tables, ListDirectory(of_rank));
    std::sort(tables.begin(), tables.end(), NaturalLess);
    for (const std::string& table : tables) {
      const std::string_view metric = MetricOfFile(table);
      if (metric.empty()) continue;
      files.push_back(
          {.path = JoinPath(of_rank, table), .metric = std::string(metric), .rank = rank});
    }
  }
  return files;
}

struct Columns {
  TrendColumns columns;
  std::map<std::string, size_t, std::less<>> metrics;
  std::array<int, kStatistics.size()> places{};  // of each statistic in trend_data; -1: not in it
};

Columns ColumnsOf(const std::vector<MonitorFile>& files) {
  Columns out;
  std::map<std::string, std::array<bool, kStatistics.size()>> of_metrics;
  std::array<bool, kStatistics.size()> all{};
  for (const MonitorFile& file : files) {
    if (!file.failed.ok()) continue;
    for (const int statistic : file.statistics) {
      if (statistic >= 0) of_metrics[file.metric][statistic] = all[statistic] = true;
    }
  }
  const auto names = [](const std::array<bool, kStatistics.size()>& which) {
    std::vector<std::string> list;
    for (size_t i = 0; i < which.size(); ++i) {
      if (which[i]) list.emplace_back(kStatistics[i]);
    }
    return list;
  };
  out.columns.statistics = names(all);
  int next = 0;
  for (size_t i = 0; i < all.size(); ++i) out.places[i] = all[i] ? next++ : -1;
  for (const auto& [metric, which] : of_metrics) {
    out.metrics.emplace(metric, out.columns.metrics.size());
    out.columns.metrics.push_back(metric);
    out.columns.of_metrics.push_back(names(which));
  }
  return out;
}

Status WriteFileOf(const MonitorFile& file, const Columns& columns, int64_t passes,
                   const TrendOptions& options, TrendDb* out) {
  bool is_header = true;
  Status status;
  std::vector<double> values(columns.columns.statistics.size());
  std::vector<TrendTag> tags;
  const Status read = formats::ReadTableFile(file.path, [&](const formats::TableLine& line) {
    if (std::exchange(is_header, false)) return true;
    const int64_t step = NumberAfter(Cell(line, file.step), "");
    const int64_t pass = std::max<int64_t>(NumberAfter(Cell(line, file.micro_step), ""), 0);
    constexpr int64_t kMost = 1000000000;
    if (step < 0 || step > kMost || pass >= passes) return true;
    std::fill(values.begin(), values.end(), std::numeric_limits<double>::quiet_NaN());
    for (size_t i = 0; i < file.statistics.size(); ++i) {
      if (file.statistics[i] >= 0)
        values[columns.places[file.statistics[i]]] = Number(Cell(line, static_cast<int>(i)));
    }
    std::string name(Cell(line, file.name));
    Replace(options.replacements, &name);
    tags.clear();
    AppendPathTags(name, true, &tags);
    const int64_t stage = std::clamp<int64_t>(NumberAfter(Cell(line, file.vpp), ""), 0, kMost);
    const TrendTarget target{.name = name,
                             .vpp_stage = static_cast<int32_t>(stage),
                             .number = options.micro_steps ? 0 : static_cast<int32_t>(pass),
                             .tags = tags};
    status = out->Add(target,
                      {.step = options.micro_steps ? step * passes + pass : step,
                       .rank = file.rank,
                       .metric = columns.metrics.at(file.metric)},
                      values);
    return status.ok();
  });
  return status.ok() ? read : status;
}

}  // namespace

Result<TrendMade> TrendOfMonitor(const std::string& folder, const std::string& path,
                                 const TrendOptions& options) {
  TrendMade made;
  MSPROBE_ASSIGN_OR_RETURN(std::vector<MonitorFile> files, FindFiles(folder));
  ThreadPool pool(std::max<size_t>(options.threads, 1));
  pool.ParallelFor(files.size(), [&](size_t i) { LookAt(&files[i]); });
  const Columns columns = ColumnsOf(files);
  int64_t passes = 1;
  for (const MonitorFile& file : files) {
    if (!file.failed.ok()) {
      made.notes.push_back("left out: {}"_t(file.failed.AsMessage()));
    } else {
      passes = std::max(passes, file.passes);
    }
  }
  if (columns.columns.metrics.empty()) return made;
  MSPROBE_ASSIGN_OR_RETURN(const std::unique_ptr<TrendDb> out,
                           TrendDb::Create(path, columns.columns));
  for (const MonitorFile& file : files) {
    if (!file.failed.ok() || !columns.metrics.contains(file.metric)) continue;
    MSPROBE_RETURN_IF_ERROR(WriteFileOf(file, columns, passes, options, out.get()));
  }
  made.rows = out->rows();
  if (made.rows > 0) MSPROBE_RETURN_IF_ERROR(out->Finish());
  return made;
}

}  // namespace msprobe::exports
