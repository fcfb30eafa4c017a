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
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/text_buffer.h"
#include "engine/compare/model/comparison.h"
#include "engine/compare/table/columns.h"
#include "engine/compare/table/generation_rules.h"
#include "engine/compare/table/table26_rules.h"
#include "engine/compare/table/table_options.h"
#include "engine/formats/tables/xlsx.h"

namespace msprobe::compare {

struct TableCell {
  uint32_t offset = 0, size = 0;  // into TableRow::text
  CellKind kind = CellKind::kText;
};

struct TableRow {
  TextBuffer text;
  std::vector<TableCell> cells;  // one for each column
  std::string_view TextOf(const TableCell& cell) const {
    return text.view().substr(cell.offset, cell.size);
  }
};

// `options` with the generation of the tool that wrote the dumps, where `recognize_1_2` asks for
// it.
TableOptions OptionsFor(const Comparison& comparison, TableOptions options);

// The constructor prepares what all rows need: the verdicts of the generation and the spelling of
// stacks. The comparison must outlive the format.
class TableFormat {
 public:
  explicit TableFormat(const Comparison& comparison, const TableOptions& options = {});
  const std::vector<Column>& columns() const { return columns_; }
  const Comparison& comparison() const { return comparison_; }
  size_t rows() const { return comparison_.rows.size(); }
  // The rows that stand in the table, in their order: all, or with TableOptions::only_differing all
  // but those that agree (equal or within rounding, and a pass).
  size_t written_rows() const { return only_differing_ ? written_.size() : rows(); }
  size_t WrittenRow(size_t i) const { return only_differing_ ? written_[i] : i; }
  // Replaces the content of `out` by the cells of a row. Thread-safe with a different `out` each.
  void Fill(size_t row, TableRow* out) const;
  // Appends a row as a line of csv; faster than Fill. Thread-safe with a different `out` each.
  void AppendCsv(size_t row, TextBuffer* out) const;
  // The color of a row by the rules of the generation; grey for unmatched and unknown rows.
  formats::RowColor ColorOf(size_t row) const;
  // The verdict by the rules of msprobe 26, also in the tables of other generations.
  Result26 ResultOf(size_t row) const { return verdicts_[row].result; }
  // The verdict by the rules of the table's own generation; null in the table of 26.
  const GenerationVerdict* GenerationVerdictOf(size_t row) const;

 private:
  friend class RowCells;
  bool Agrees(size_t row) const;
  void LeaveAgreeingOut();
  bool IsFirstOfCall(size_t row) const;  // of the rows that are written
  const Comparison& comparison_;
  TableOptions options_;
  std::vector<Column> columns_;
  std::vector<GenerationVerdict> generation_verdicts_;  // one for each row; none in that of 26
  std::string_view later_stack_ = "N/A";  // the stack cell of all rows of a call but the first
  std::vector<uint32_t> pair_of_;         // for each row its index into Comparison::pairs
  std::vector<Verdict26> verdicts_;       // one for each row
  bool only_differing_ = false;
  std::vector<uint32_t> written_;         // with only_differing_: rows
  std::vector<bool> first_of_call_;       // with only_differing_: of each row
  std::vector<std::string> stack_texts_;  // one for each stack of the target
  std::vector<std::string> stack_cells_;  // the same, quoted for csv
  std::vector<std::string> target_sources_,
      golden_sources_;  // one for each stack: "train.py:41 in forward: y = ..."
};

}  // namespace msprobe::compare
