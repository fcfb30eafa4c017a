// A details file in memory, of this tool or of msprobe 1.0 to 26.
//
//   MSPROBE_ASSIGN_OR_RETURN(DetailsTable npu,
//       DetailsTable::Read("accuracy_checking_details_1.csv"));
//   npu.cell(0, kRmse);                              // "0.00000000000000", " ": not set
//   npu.Find("Tensor.add.0.forward.output.0");       // index of the row, -1: none
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/accuracy/columns.h"
#include "engine/base/status.h"

namespace msprobe::accuracy {

class DetailsTable {
 public:
  // Columns are known by their titles; those that the comparison does not read may be missing.
  // Errors: those of the file; kInvalidDump when a column is missing, when a row has other cells
  // than the first one, when a metric is no number, or when two rows have one name.
  static Result<DetailsTable> Read(const std::string& path);
  static Result<DetailsTable> Parse(std::string_view text, const std::string& path);
  DetailsTable(DetailsTable&&) = default;
  DetailsTable& operator=(DetailsTable&&) = default;

  size_t rows() const { return rows_.size(); }
  std::string_view cell(size_t row, DetailsColumn column) const {
    const auto& starts = rows_[row];
    return std::string_view(text_).substr(starts[column], starts[column + 1] - starts[column]);
  }
  bool IsBlank(size_t row, DetailsColumn column) const;
  // A metric; NaN for a blank cell.
  double Number(size_t row, DetailsColumn column) const;
  int64_t Find(std::string_view name) const;

 private:
  DetailsTable() = default;
  // Where the name is, or the empty place where it belongs.
  size_t PlaceOf(std::string_view name) const;
  std::string text_;  // all cells, row by row, in the order of DetailsColumn
  std::vector<std::array<uint32_t, kDetailsColumns + 1>> rows_;  // where cells start in text_
  // Hash table of the names: row + 1, 0 for an empty place; the next place is tried after a full
  // one.
  std::vector<uint32_t> places_;
};

// Whether a cell is empty or only blanks.
bool IsBlankCell(std::string_view cell);
// The number in a cell, as Python's float() reads it; false: none.
bool ParseMetric(std::string_view cell, double* value);

}  // namespace msprobe::accuracy
