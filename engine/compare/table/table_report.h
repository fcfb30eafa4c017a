// The result table as csv and xlsx.
//
//   TableFormat table(comparison);
//   MSPROBE_RETURN_IF_ERROR(WriteTableCsv(table, "out/compare_result_20260102030405.csv"));
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "engine/base/status.h"
#include "engine/compare/table/table_format.h"
#include "engine/formats/xlsx.h"

namespace msprobe::compare {

// Called now and then with the rows done so far. May be empty.
using TableProgress = std::function<void(size_t done, size_t all)>;

// Rows are formatted in parallel, a few hundred at a time, and handed to `write` in order while
// others are formatted (from one thread at a time, but not always the same): memory does not grow
// with the table. The header comes first. `progress` is called from where `write` is.
Status StreamTableCsv(const TableFormat& table,
                      const std::function<Status(std::span<const std::string_view>)>& write,
                      const TableProgress& progress = {});

// Both write through a temporary file: the whole table or nothing.
Status WriteTableCsv(const TableFormat& table, const std::string& path,
                     const TableProgress& progress = {});
// Errors in red, warnings in yellow, unknown and unmatched rows in grey; beyond Excel's rows the
// table goes on in further sheets. A sheet "summary" comes last: programs read the first.
Status WriteTableXlsx(const TableFormat& table, const std::string& path,
                      const TableProgress& progress = {},
                      size_t rows_per_sheet = formats::kMaxXlsxRows - 1);

}  // namespace msprobe::compare
