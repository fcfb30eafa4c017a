#include "engine/compare/table_report.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "engine/base/ordered.h"
#include "engine/base/threads.h"
#include "engine/compare/residency.h"
#include "engine/formats/atomic_file.h"
#include "engine/formats/csv.h"
#include "engine/formats/xlsx.h"

namespace msprobe {
namespace {

constexpr size_t kRowsPerPart = 512;  // what a core's own cache holds
constexpr size_t kPartsReady = 16;

std::vector<std::string_view> Header(const TableFormat& table) {
  std::vector<std::string_view> names;
  for (const Column& column : table.columns()) names.push_back(column.name);
  return names;
}

}  // namespace

Status StreamTableCsv(const TableFormat& table,
                      const std::function<Status(std::span<const std::string_view>)>& write,
                      const TableProgress& progress) {
  CsvWriter header;
  for (std::string_view name : Header(table)) header.NumberCell(name);
  header.EndRow();
  const std::string_view head = header.text();
  MSPROBE_RETURN_IF_ERROR(write({&head, 1}));
  const size_t rows = table.rows();
  size_t done = 0;
  OrderedParts<TextBuffer> parts(kPartsReady, [&](TextBuffer* part) {
    const std::string_view text = part->view();
    MSPROBE_RETURN_IF_ERROR(write({&text, 1}));
    done = std::min(rows, done + kRowsPerPart);
    if (progress) progress(done, rows);
    return Status::Ok();
  });
  Residency residency(table.comparison().target, table.comparison().golden);
  ThreadPool::Default().ParallelFor((rows + kRowsPerPart - 1) / kRowsPerPart, [&](size_t i) {
    TextBuffer part = parts.Take();
    part.Clear();
    const size_t last = std::min(rows, (i + 1) * kRowsPerPart);
    residency.Passed(last - i * kRowsPerPart);
    for (size_t row = i * kRowsPerPart; row < last; ++row) table.AppendCsv(row, &part);
    parts.Put(i, std::move(part));
  });
  return parts.status();
}

Status WriteTableCsv(const TableFormat& table, const std::string& path,
                     const TableProgress& progress) {
  MSPROBE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  const auto write = [&](std::span<const std::string_view> pieces) { return file.Write(pieces); };
  MSPROBE_RETURN_IF_ERROR(StreamTableCsv(table, write, progress));
  return file.Commit();
}

Status WriteTableXlsx(const TableFormat& table, const std::string& path,
                      const TableProgress& progress) {
  MSPROBE_ASSIGN_OR_RETURN(XlsxWriter book, XlsxWriter::Create(path));
  const std::vector<std::string_view> header = Header(table);
  MSPROBE_RETURN_IF_ERROR(book.AddSheet("compare_result", header));
  TableRow row;
  for (size_t i = 0; i < table.rows(); ++i) {
    table.Fill(i, &row);
    for (const TableCell& cell : row.cells) {
      const std::string_view text = row.TextOf(cell);
      double number = 0;
      const char* end = text.data() + text.size();
      // An integer whose digits a cell cannot hold stays text, so that none is lost.
      const bool too_long = text.size() > 15 && text.find_first_of(".eE") == std::string_view::npos;
      const bool is_number = cell.kind == CellKind::kNumber && !text.empty() && !too_long &&
                             std::from_chars(text.data(), end, number).ptr == end;
      is_number ? book.NumberCell(number) : book.TextCell(text);
    }
    MSPROBE_RETURN_IF_ERROR(book.EndRow(table.ColorOf(i)));
    if (progress && i % 8192 == 0) progress(i, table.rows());
  }
  return book.Close();
}

}  // namespace msprobe
