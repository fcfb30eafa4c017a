// The result table, row by row: the text and the kind of each cell.
//
//   TableFormat format(comparison);
//   for (const Column& c : format.columns()) header.emplace_back(c.name);
//   TableRow row;                                     // reused: no allocation once it has grown
//   for (size_t i = 0; i < comparison.rows.size(); ++i) {
//     format.Fill(i, &row);
//     for (const TableCell& cell : row.cells) Write(row.TextOf(cell), cell.kind);
//   }
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/text_buffer.h"
#include "engine/compare/model/comparison.h"
#include "engine/compare/table/columns.h"
#include "engine/compare/table/table26_rules.h"
#include "engine/compare/table/table_options.h"
#include "engine/formats/xlsx.h"

namespace msprobe::compare {

struct TableCell {
  uint32_t offset = 0, size = 0;  // into TableRow::text
  CellKind kind = CellKind::kText;
};

struct TableRow {
  TextBuffer text;
  std::vector<TableCell> cells;  // one a column
  std::string_view TextOf(const TableCell& cell) const {
    return text.view().substr(cell.offset, cell.size);
  }
};

class GenerationCells;
struct GenerationVerdict;

// Prepares what rows share (verdicts by the old rules, spelling of stacks). Refers to the
// comparison, which must outlive it.
class TableFormat {
 public:
  explicit TableFormat(const Comparison& comparison, const TableOptions& options = {});
  ~TableFormat();
  const std::vector<Column>& columns() const { return columns_; }
  const Comparison& comparison() const { return comparison_; }
  size_t rows() const { return comparison_.rows.size(); }
  // Replaces the content of `out` by row `row`. Thread-safe for different `out`.
  void Fill(size_t row, TableRow* out) const;
  // Appends row `row` as a line of csv: what the cells of Fill would give, in one go. Thread-safe,
  // too.
  void AppendCsv(size_t row, TextBuffer* out) const;
  // Red, yellow, grey for what is no answer; in the colors of the generation.
  formats::RowColor ColorOf(size_t row) const;
  // By the rules of 26, in every generation's table.
  Result26 ResultOf(size_t row) const { return verdicts_[row].result; }
  // Of generations 1.0 and 8; null in the table of 26.
  const GenerationVerdict* GenerationVerdictOf(size_t row) const;

 private:
  class Filler;
  const Comparison& comparison_;
  std::vector<Column> columns_;
  std::unique_ptr<GenerationCells> generation_cells_;  // of generations 1.0 and 8
  std::string_view later_stack_ = "N/A";               // in the rows behind the first of a call
  std::vector<uint32_t> pair_of_;                      // one a row
  std::vector<Verdict26> verdicts_;                    // one a row
  std::vector<std::string> stack_texts_;               // one a stack of the target
  std::vector<std::string> stack_cells_;               // the same as csv
  std::vector<std::string> target_sources_,
      golden_sources_;  // one a stack of each side: "train.py:41 in forward: y = ..."
};

}  // namespace msprobe::compare
