#include "engine/compare/merge_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/compare/table/table_options.h"
#include "engine/formats/tables/table_file.h"
#include "engine/formats/tables/xlsx.h"
#include "engine/formats/text/name_lists.h"
#include "engine/model/names.h"

namespace msprobe::compare {
namespace {

constexpr std::string_view kName = "NPU Name", kTargetMax = "NPU max", kGoldenMax = "Bench max";

// The columns that are merged when the configuration names none: the metrics of a table, or the
// verdicts of a table of checksums.
constexpr std::string_view kMetrics[] = {"Cosine",
                                         "EucDist",
                                         "MaxAbsErr",
                                         "MaxRelativeErr",
                                         "One Thousandth Err Ratio",
                                         "Five Thousandths Err Ratio",
                                         "Max diff",
                                         "Min diff",
                                         "Mean diff",
                                         "L2norm diff",
                                         "MinRelativeErr",
                                         "MeanRelativeErr",
                                         "NormRelativeErr",
                                         "Requires_grad Consistent"};
constexpr std::string_view kChecksumMetrics[] = {"Requires_grad Consistent", "Result"};

bool IsAllDigits(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

struct RankFile {
  int64_t rank;
  std::string name, time;
};

// compare_result_rank3_20260102030405.csv, or compare_result_rank3-rank3_... of msprobe 1.0.
std::optional<RankFile> ParseFileName(const std::string& name) {
  constexpr std::string_view kPrefix = "compare_result_rank";
  std::string_view rest = name;
  if (!rest.starts_with(kPrefix) || !(rest.ends_with(".csv") || rest.ends_with(".xlsx"))) {
    return std::nullopt;
  }
  rest.remove_prefix(kPrefix.size());
  rest = rest.substr(0, rest.rfind('.'));
  const size_t underscore = rest.find('_');
  if (underscore == rest.npos) return std::nullopt;
  const std::string_view time = rest.substr(underscore + 1);
  std::string_view number = rest.substr(0, underscore);
  if (const size_t dash = number.find("-rank"); dash != number.npos) {
    if (number.substr(0, dash) != number.substr(dash + 5)) return std::nullopt;
    number = number.substr(0, dash);
  }
  const int64_t rank = NumberAfter(number, "");
  if (rank < 0 || time.size() != 14 || !IsAllDigits(time)) return std::nullopt;
  return RankFile{rank, name, std::string(time)};
}

Result<std::vector<RankFile>> FilesIn(const std::string& folder, std::vector<Message>* notes) {
  if (!IsDirectory(folder)) {
    return NotFound(folder).Expected("the folder that msprobe compare wrote its tables to"_t);
  }
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(folder));
  std::map<int64_t, RankFile> newest;
  for (const std::string& name : names) {
    const bool is_table =
        name.starts_with("compare_result") && (name.ends_with(".csv") || name.ends_with(".xlsx"));
    std::optional<RankFile> file = ParseFileName(name);
    if (!file) {
      if (is_table) notes->push_back("{}: its name has no rank"_t(name));
      continue;
    }
    const auto [at, added] = newest.try_emplace(file->rank, *file);
    if (added) continue;
    if (file->time > at->second.time) std::swap(at->second, *file);
    notes->push_back("{}: {} is newer"_t(file->name, at->second.name));
  }
  if (newest.size() < 2) {
    return InvalidArgument()
        .At(folder)
        .Expected("tables of at least two ranks (compare_result_rank0_20260102030405.csv)"_t)
        .Found(std::to_string(newest.size()))
        .Hint("msprobe compare writes them when both paths hold several ranks"_t);
  }
  std::vector<RankFile> files;
  for (auto& [rank, file] : newest) files.push_back(std::move(file));
  return files;
}

class Merger {
 public:
  explicit Merger(const MergeConfig& config) : config_(config) {
    for (const std::string& api : config.apis) wanted_.push_back(api + '.');
  }

  Status Add(const std::string& folder, const RankFile& file, MergedTables* out) {
    const std::string path = JoinPath(folder, file.name);
    out_ = out;
    rank_ = file.rank;
    name_ = max_ = golden_max_ = -1;
    columns_.clear();
    Status wrong;
    bool header = true, skip = false;
    std::string sheet;
    Status read = formats::ReadTableFile(path, [&](const formats::TableLine& line) {
      if (header || line.sheet != sheet) {
        // Further sheets go on with the rows under the same header, or are something else.
        sheet = line.sheet;
        skip = std::find(line.cells.begin(), line.cells.end(), kName) == line.cells.end();
        if (header && !skip) wrong = Header(file.name, line.cells);
        if (skip && header)
          wrong = InvalidDump(path)
                      .Expected("a table of msprobe compare, which has the column NPU Name"_t)
                      .Found("none in its first row"_t);
        header = false;
        return wrong.ok();
      }
      if (!skip) Row(line.cells);
      return true;
    });
    MSPROBE_RETURN_IF_ERROR(wrong);
    if (read.ok() && header) {
      return InvalidDump(path).Expected("a table of msprobe compare"_t).Found("an empty file"_t);
    }
    if (read.ok()) out->ranks.push_back(file.rank);
    return read;
  }

 private:
  struct Column {
    size_t at, index;  // in the row; in MergedTables::indices
  };

  Status Header(const std::string& file, std::span<const std::string_view> cells) {
    const auto find = [&](std::string_view name) {
      const auto at = std::find(cells.begin(), cells.end(), name);
      return at == cells.end() ? -1 : static_cast<int64_t>(at - cells.begin());
    };
    name_ = find(kName);
    max_ = find(kTargetMax);
    golden_max_ = find(kGoldenMax);
    std::vector<std::string_view> wanted(config_.indices.begin(), config_.indices.end());
    if (wanted.empty()) {
      const bool checksums = find("NPU MD5") >= 0;
      const std::span<const std::string_view> all =
          checksums ? std::span<const std::string_view>(kChecksumMetrics) : kMetrics;
      for (const std::string_view name : all) {
        if (find(name) >= 0) wanted.push_back(name);
      }
    }
    for (const std::string_view name : wanted) {
      const int64_t at = find(name);
      if (at < 0) {
        const std::string_view near = NearestSpelling(name, cells);
        out_->notes.push_back(
            near.empty() ? "{}: has no column {}"_t(file, Excerpt(name))
                         : "{}: has no column {}; did you mean {}?"_t(file, Excerpt(name), near));
        continue;
      }
      columns_.push_back({static_cast<size_t>(at), IndexNamed(name)});
    }
    return Status::Ok();
  }

  size_t IndexNamed(std::string_view name) {
    for (size_t i = 0; i < out_->indices.size(); ++i) {
      if (out_->indices[i].name == name) return i;
    }
    out_->indices.push_back({std::string(name), {}});
    rows_.emplace_back();
    return out_->indices.size() - 1;
  }

  void Row(std::span<const std::string_view> cells) {
    const auto cell = [&](int64_t at) {
      return at >= 0 && static_cast<size_t>(at) < cells.size() ? cells[at] : std::string_view();
    };
    const std::string name(cell(name_));
    if (std::none_of(wanted_.begin(), wanted_.end(),
                     [&](const std::string& api) { return name.find(api) != std::string::npos; })) {
      return;
    }
    for (const Column& column : columns_) {
      std::string value(cell(static_cast<int64_t>(column.at)));
      if (value == "N/A" || value == "unsupported" || value == "Nan") {
        value = fmt::format("NPU:{}  Bench:{}", cell(max_), cell(golden_max_));
      }
      std::vector<MergedTables::Row>& rows = out_->indices[column.index].rows;
      const auto [at, added] = rows_[column.index].try_emplace(name, rows.size());
      if (added) rows.push_back({name, {}});
      rows[at->second].values[rank_] = std::move(value);
    }
  }

  const MergeConfig& config_;
  std::vector<std::string> wanted_;
  MergedTables* out_ = nullptr;
  int64_t rank_ = 0, name_ = -1, max_ = -1, golden_max_ = -1;
  std::vector<Column> columns_;
  std::vector<std::unordered_map<std::string, size_t>> rows_;  // of each index: name -> row
};

// How many values of the rows are in the table of no rank.
size_t MissingValues(const MergedTables& merged) {
  size_t missing = 0;
  for (const MergedTables::Index& index : merged.indices) {
    for (const MergedTables::Row& row : index.rows)
      missing += merged.ranks.size() - row.values.size();
  }
  return missing;
}

// A name that Excel takes for a sheet: at most 31 characters, none of []:*?/\ among them, and
// different from the others by more than upper and lower case.
std::string SheetName(std::string_view index, std::set<std::string>* taken) {
  constexpr size_t kMost = 31;
  std::string whole(index);
  for (char& c : whole) {
    if (std::string_view("[]:*?/\\'").find(c) != std::string_view::npos) c = '_';
  }
  std::string name = whole.substr(0, kMost);
  for (int n = 2; !taken->insert(Lower(name)).second; ++n) {
    const std::string number = fmt::format("~{}", n);
    name = whole.substr(0, kMost - number.size()) + number;
  }
  return name;
}

}  // namespace

Result<MergeConfig> ReadMergeConfig(const std::string& path) {
  MSPROBE_ASSIGN_OR_RETURN(const formats::NameLists lists, formats::ReadNameLists(path));
  MergeConfig config;
  for (const auto& [key, names] : lists) {
    if (key == "api") {
      config.apis = names;
    } else if (key == "compare_index") {
      config.indices = names;
    } else {
      return InvalidConfig(path).Expected("the keys api and compare_index"_t).Found(Excerpt(key));
    }
  }
  if (config.apis.empty()) {
    return InvalidConfig(path)
        .Expected("the names of calls under the key api"_t)
        .Found("none"_t)
        .Hint(std::string("api:\n  - Distributed.all_reduce\ncompare_index:\n  - NormRelativeErr"));
  }
  return config;
}

Result<MergedTables> MergeRanks(const std::string& folder, const MergeConfig& config) {
  MergedTables merged;
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<RankFile> files, FilesIn(folder, &merged.notes));
  Merger merger(config);
  for (const RankFile& file : files) {
    MSPROBE_RETURN_IF_ERROR(merger.Add(folder, file, &merged));
  }
  const bool many = files.size() > kManyRanks;
  if (merged.indices.empty()) {
    return InvalidArgument("{}: no table has a column of compare_index"_t(folder))
        .Hint(merged.notes.empty() ? Message() : merged.notes.front());
  }
  if (std::all_of(merged.indices.begin(), merged.indices.end(),
                  [](const MergedTables::Index& index) { return index.rows.empty(); })) {
    return InvalidArgument("{}: no row of {} tables names {}"_t(folder, files.size(),
                                                                Excerpt(config.apis.front())))
        .Hint(many ? "tables of many ranks may have only rows that differ: msprobe compare "
                     "--all-rows writes all"_t
                   : "names under api are parts of NPU Name, as in Distributed.all_reduce"_t);
  }
  if (const size_t missing = MissingValues(merged); many && missing > 0) {
    merged.notes.push_back(
        "{} values, which no table has: tables of many ranks may have only rows that differ, "
        "msprobe compare --all-rows writes all"_t(missing));
  }
  return merged;
}

Status WriteMerged(const MergedTables& merged, const std::string& path) {
  MSPROBE_ASSIGN_OR_RETURN(formats::XlsxWriter book, formats::XlsxWriter::Create(path));
  std::vector<std::string> ranks;
  for (const int64_t rank : merged.ranks) ranks.push_back(fmt::format("rank{}", rank));
  std::vector<std::string_view> header = {kName};
  header.insert(header.end(), ranks.begin(), ranks.end());
  std::set<std::string> taken;
  for (const MergedTables::Index& index : merged.indices) {
    MSPROBE_RETURN_IF_ERROR(book.AddSheet({.name = SheetName(index.name, &taken),
                                           .header = header,
                                           .widths = {60},
                                           .rows = static_cast<uint32_t>(index.rows.size())}));
    formats::XlsxRows rows(book.next_row());
    for (const MergedTables::Row& row : index.rows) {
      rows.BeginRow();
      rows.TextCell(row.name);
      for (const int64_t rank : merged.ranks) {
        const auto value = row.values.find(rank);
        rows.SpelledCell(value == row.values.end() ? "" : value->second);
      }
      rows.EndRow();
    }
    rows.Compress();
    MSPROBE_RETURN_IF_ERROR(book.Append({&rows, 1}));
  }
  return book.Close();
}

}  // namespace msprobe::compare
