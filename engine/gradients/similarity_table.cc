#include "engine/gradients/similarity_table.h"

#include <cmath>

#include "engine/formats/tables/csv.h"

namespace msprobe::gradients {

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
  csv.TextCell("step");
  for (const int64_t step : steps_) csv.IntegerCell(step);
  csv.EndRow();
  for (size_t row = 0; row < parameters_.size(); ++row) {
    csv.TextCell(parameters_[row]);
    for (size_t step = 0; step < steps_.size(); ++step) number(At(row, step));
    csv.EndRow();
  }
  csv.TextCell("summary");
  for (size_t step = 0; step < steps_.size(); ++step) number(Summary(step));
  csv.EndRow();
  return formats::WriteCsv(path, {&csv, 1});
}

}  // namespace msprobe::gradients
