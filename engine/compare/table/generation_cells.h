// The columns and cells in which the tables of msprobe 1.0, 1.2 and 8 differ from those of 26, and
// those of torch_npu.hooks and ptdbg_ascend.
//
//   GenerationCells cells(comparison, options);
//   std::optional<CellKind> kind = cells.Cell(row, ColumnId::kCosine, &text);   // none: as in 26
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/compare/table/columns.h"
#include "engine/compare/table/generation_rules.h"

namespace msprobe::compare {

class GenerationCells {
 public:
  GenerationCells(const Comparison& comparison, const TableOptions& options)
      : c_(comparison), options_(options), verdicts_(JudgeByGeneration(comparison, options)) {}

  // Appends the cell's text. nullopt, and nothing is appended, when the cell is the same as in the
  // table of 26.
  std::optional<CellKind> Cell(size_t row, ColumnId column, std::string* out) const;
  const GenerationVerdict& verdict(size_t row) const { return verdicts_[row]; }

 private:
  CellKind Difference(size_t row, int which, std::string* out) const;
  CellKind Relative(size_t row, int which, std::string* out) const;
  std::optional<CellKind> Metric(size_t row, ColumnId column, std::string* out) const;
  // A cell of the tables of torch_npu.hooks and ptdbg_ascend.
  std::optional<CellKind> PklCell(size_t row, ColumnId column, std::string* out) const;
  CellKind HooksMetric(size_t row, ColumnId column, std::string* out) const;
  CellKind FirstPtdbgMetric(size_t row, ColumnId column, std::string* out) const;
  CellKind PtdbgMetric(size_t row, ColumnId column, std::string* out) const;
  CellKind ScalarMetric(size_t row, ColumnId column, std::string* out) const;
  CellKind PklDifference(size_t row, int which, std::string* out) const;
  CellKind PklWord(size_t row, std::string* out) const;
  bool IsHiddenGradient(size_t row) const;
  std::optional<CellKind> Checksum(const Leaf* leaf, std::string* out) const;
  const Leaf* Target(size_t row) const;
  const Leaf* Golden(size_t row) const;

  const Comparison& c_;
  TableOptions options_;
  std::vector<GenerationVerdict> verdicts_;  // one for each row
};

}  // namespace msprobe::compare
