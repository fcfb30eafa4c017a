#include "engine/results/result_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "engine/base/file.h"
#include "engine/model/names.h"

namespace msprobe::results {
namespace {

// "compare_result_rank3_20260102030405.csv"; unset: another file.
std::optional<ResultTable> TableNamed(const std::string& folder, std::string_view name) {
  std::string_view stem = name;
  for (const std::string_view extension : {".csv", ".xlsx"}) {
    if (stem.ends_with(extension)) stem.remove_suffix(extension.size());
  }
  if (stem.size() == name.size()) return std::nullopt;
  if (stem.starts_with("debug_")) stem.remove_prefix(6);
  constexpr std::string_view kBegin = "compare_result";
  constexpr size_t kDigits = 14;
  if (!stem.starts_with(kBegin) || stem.size() < kBegin.size() + 1 + kDigits) return std::nullopt;
  const std::string_view time = stem.substr(stem.size() - kDigits);
  if (time.find_first_not_of("0123456789") != time.npos) return std::nullopt;
  stem.remove_suffix(kDigits);
  if (!stem.ends_with('_')) return std::nullopt;
  stem.remove_suffix(1);
  ResultTable table{.path = JoinPath(folder, name), .time = std::string(time)};
  if (const size_t at = stem.rfind("_rank"); at != stem.npos) {
    std::string_view rank = stem.substr(at + 1);
    rank = rank.substr(0, rank.find('-'));  // "rank0-rank0" of ptdbg_ascend
    table.rank = static_cast<int32_t>(NumberAfter(rank, "rank"));
  }
  return table;
}

// The document that was written with tables of this time; "".
std::string FindingBeside(const std::string& folder, const std::string& time) {
  std::string finding = JoinPath(folder, fmt::format("{}{}.json", kFindingFile, time));
  return Exists(finding) ? finding : "";
}

// The newest document that was written after all tables: merge_result makes it of the parts of a
// comparison, whose tables have times of their own. "": there is none.
std::string FindingAfter(const std::vector<std::string>& names, const std::string& folder,
                         const std::string& newest_table) {
  std::string newest;
  for (const std::string& name : names) {
    if (!name.starts_with(kFindingFile) || !name.ends_with(".json")) continue;
    const std::string time = name.substr(kFindingFile.size(), newest_table.size());
    if (name == fmt::format("{}{}.json", kFindingFile, time)) newest = std::max(newest, time);
  }
  return newest > newest_table ? FindingBeside(folder, newest) : "";
}

// The document of the tables, or a note where they may be of several.
void FindDocument(const std::vector<std::string>& names, const std::string& folder,
                  ResultFolder* found) {
  const auto [first, last] = std::ranges::minmax(found->tables, {}, &ResultTable::time);
  const bool one_time = first.time == last.time;
  if (one_time) found->finding = FindingBeside(folder, first.time);
  if (found->finding.empty()) found->finding = FindingAfter(names, folder, last.time);
  if (one_time || !found->finding.empty()) return;
  found->notes.push_back(
      "the tables of this folder have different times: they may be of different comparisons"_t);
}

int32_t StepOf(const std::string& folder) {
  return static_cast<int32_t>(NumberAfter(BaseName(folder), "step"));
}

}  // namespace

ResultFolder FindOneTable(const std::string& path) {
  const std::string folder = DirectoryName(path);
  std::optional<ResultTable> table = TableNamed(folder, BaseName(path));
  if (!table) return {.tables = {{.path = path}}};
  table->path = path;
  ResultFolder found{.finding = FindingBeside(folder, table->time)};
  if (const int32_t step = StepOf(folder); step >= 0 && found.finding.empty()) {
    table->step = step;
    found.finding = FindingBeside(DirectoryName(folder), table->time);
  }
  found.tables.push_back(*std::move(table));
  return found;
}

Result<ResultFolder> FindResultTables(const std::string& folder) {
  std::map<std::pair<int32_t, int32_t>, ResultTable> newest;
  int64_t older = 0;
  const auto look = [&](const std::string& in, int32_t step) -> Status {
    MSPROBE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(in));
    for (const std::string& name : names) {
      std::optional<ResultTable> table = TableNamed(in, name);
      if (!table) continue;
      table->step = step;
      ResultTable& kept = newest[{step, table->rank}];
      if (!kept.path.empty()) ++older;
      if (kept.time < table->time) kept = std::move(*table);
    }
    return Status::Ok();
  };
  MSPROBE_RETURN_IF_ERROR(look(folder, -1));
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(folder));
  for (const std::string& name : names) {
    const std::string path = JoinPath(folder, name);
    const int32_t step = StepOf(path);
    if (step >= 0 && IsDirectory(path)) MSPROBE_RETURN_IF_ERROR(look(path, step));
  }
  ResultFolder found;
  for (auto& [place, table] : newest) found.tables.push_back(std::move(table));
  if (older > 0) found.notes.push_back("{} older tables of the same ranks and steps"_t(older));
  if (!found.tables.empty()) FindDocument(names, folder, &found);
  return found;
}

}  // namespace msprobe::results
