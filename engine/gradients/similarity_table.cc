#include "engine/gradients/similarity_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>

#include "engine/formats/tables/csv.h"
#include "engine/formats/tables/table_file.h"

namespace msprobe::gradients {
namespace {

constexpr std::string_view kSteps = "step", kSummary = "summary";  // the first and the last row

template <typename Number>
bool IsWhole(std::string_view cell, Number* number) {
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), *number);
  return error == std::errc() && end == cell.data() + cell.size();
}

// What the first row should have; empty: it is right.
Message StepsIn(std::span<const std::string_view> cells, std::vector<int64_t>* steps) {
  if (cells.empty() || cells[0] != kSteps) return "\"step\" and numbers of steps in row 1"_t;
  for (const std::string_view cell : cells.subspan(1)) {
    if (!IsWhole(cell, &steps->emplace_back()) || steps->back() < 0)
      return "numbers of steps in row 1"_t;
    if (steps->size() > 1 && steps->back() <= (*steps)[steps->size() - 2])
      return "ascending numbers of steps in row 1"_t;
  }
  return steps->empty() ? "numbers of steps in row 1"_t : Message();
}

// A cell of a table; nullopt: neither empty nor a share.
std::optional<Similarity> StatedIn(std::string_view cell) {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  Similarity similarity{.target_norm = kUnknown, .golden_norm = kUnknown};
  if (cell.empty()) return similarity;
  const bool share = IsWhole(cell, &similarity.stated) && similarity.stated >= 0 &&
                     similarity.stated <= 1;  // false of NaN
  return share ? std::optional(similarity) : std::nullopt;
}

}  // namespace

size_t SimilarityTable::Row(std::string_view parameter) {
  const auto [place, is_new] = rows_.emplace(parameter, parameters_.size());
  if (is_new) {
    parameters_.emplace_back(parameter);
    cells_.resize(cells_.size() + steps_.size());
  }
  return place->second;
}

Similarity SimilarityTable::Summary(size_t step) const {
  Similarity all;
  for (size_t row = 0; row < parameters_.size(); ++row) {
    const Similarity& cell = At(row, step);
    if (!cell.known()) continue;
    if (!all.known()) all.count = 0;
    all.same += cell.same;
    all.count += cell.count;
    all.target_norm = std::hypot(all.target_norm, cell.target_norm);
    all.golden_norm = std::hypot(all.golden_norm, cell.golden_norm);
  }
  return all;
}

Status SimilarityTable::Write(const std::string& path) const {
  formats::CsvWriter csv;
  const auto number = [&](const Similarity& cell) {
    if (!cell.known()) {
      csv.NumberCell("");
    } else if (cell.count == 0) {
      csv.IntegerCell(0);
    } else {
      csv.NumberCell(cell.share());
    }
  };
  csv.TextCell(kSteps);
  for (const int64_t step : steps_) csv.IntegerCell(step);
  csv.EndRow();
  for (size_t row = 0; row < parameters_.size(); ++row) {
    csv.TextCell(parameters_[row]);
    for (size_t step = 0; step < steps_.size(); ++step) number(At(row, step));
    csv.EndRow();
  }
  csv.TextCell(kSummary);
  for (size_t step = 0; step < steps_.size(); ++step) number(Summary(step));
  csv.EndRow();
  return formats::WriteCsv(path, {&csv, 1});
}

Result<SimilarityTable> SimilarityTable::Read(const std::string& path,
                                              std::vector<Similarity>* summary) {
  std::vector<std::pair<std::string, std::vector<Similarity>>> rows;
  std::vector<int64_t> steps;
  Status wrong;
  const auto refuse = [&](Message expected, Message found) {
    wrong = InvalidDump(path).Expected(std::move(expected)).Found(std::move(found));
    return false;
  };
  const auto sink = [&](const formats::TableLine& line) {
    if (steps.empty()) {
      Message expected = StepsIn(line.cells, &steps);
      return expected.empty() || refuse(std::move(expected), "another table"_t);
    }
    if (line.cells.size() != steps.size() + 1) {
      return refuse("{} cells in row {}"_t(steps.size() + 1, line.number),
                    fmt::format("{}", line.cells.size()));
    }
    auto& [name, cells] = rows.emplace_back(line.cells[0], std::vector<Similarity>());
    for (const std::string_view cell : line.cells.subspan(1)) {
      const std::optional<Similarity> similarity = StatedIn(cell);
      if (!similarity) return refuse("a share from 0 to 1 in row {}"_t(line.number), Excerpt(cell));
      cells.push_back(*similarity);
    }
    return true;
  };
  MSPROBE_RETURN_IF_ERROR(formats::ReadTableFile(path, sink));
  if (!wrong.ok()) return wrong;
  if (rows.empty() || rows.back().first != kSummary) {
    return InvalidDump(path)
        .Expected("a last row \"summary\""_t)
        .Found(rows.empty() ? "no row"_t : "the end of the file"_t);
  }
  *summary = std::move(rows.back().second);
  rows.pop_back();
  SimilarityTable table(std::move(steps));
  for (const auto& [name, cells] : rows) {
    const size_t row = table.Row(name);
    for (size_t step = 0; step < cells.size(); ++step) table.At(row, step) = cells[step];
  }
  return table;
}

}  // namespace msprobe::gradients
