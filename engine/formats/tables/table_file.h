// Tables in csv and xlsx files, read row by row.
//
//   Status status = ReadTableFile("out/result.xlsx", [&](const TableLine& line) {
//     Use(line.cells);
//     return true;            // false: stop reading
//   });
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "engine/base/status.h"

namespace msprobe::formats {

struct TableLine {
  std::string_view sheet;  // "" in a csv file
  uint64_t number = 0;     // of the row in its sheet or file, from 1
  // As spelled: numbers are texts, an empty cell is "". Valid until the sink returns.
  std::span<const std::string_view> cells;
};
using TableSink = std::function<bool(const TableLine&)>;

// The content decides: a zip archive is a workbook, anything else is comma-separated text. Rows
// without a cell are skipped; the sheets of a workbook come in its order. Errors: those of the
// file; kInvalidDump with the place when the file is not a table. The sink gets all rows before the
// error.
Status ReadTableFile(const std::string& path, const TableSink& sink);

// The two kinds, of bytes in memory. "..." in a quoted csv cell may hold commas and line ends.
Status ReadCsv(std::string_view text, const std::string& path, const TableSink& sink);
Status ReadXlsx(std::string_view archive, const std::string& path, const TableSink& sink);

}  // namespace msprobe::formats
