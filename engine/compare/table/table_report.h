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
#include "engine/formats/tables/xlsx.h"

namespace msprobe::compare {

// Called from time to time with the number of rows that are done. May be empty.
using TableProgress = std::function<void(size_t done, size_t all)>;

// Formats the rows on all threads, a few hundred at a time, and gives them to `write` in order, the
// header first. Memory does not grow with the table. `write` and `progress` are called by one
// thread at a time, but not always by the same one.
Status StreamTableCsv(const TableFormat& table,
                      const std::function<Status(std::span<const std::string_view>)>& write,
                      const TableProgress& progress = {}, const std::function<void()>& beside = {});

// Both write to a temporary file and rename it at the end: after an error there is no file.
// `beside` is called once, by one thread while the others format rows: reports on the comparison
// that one thread makes. It is not called if the file cannot be created.
Status WriteTableCsv(const TableFormat& table, const std::string& path,
                     const TableProgress& progress = {}, const std::function<void()>& beside = {});
// Rows have the colors of TableFormat::ColorOf. A table with more rows than Excel allows continues
// on further sheets. The sheet "summary" is the last one, because programs read the first.
Status WriteTableXlsx(const TableFormat& table, const std::string& path,
                      const TableProgress& progress = {},
                      size_t rows_per_sheet = formats::kMaxXlsxRows - 1);

}  // namespace msprobe::compare
