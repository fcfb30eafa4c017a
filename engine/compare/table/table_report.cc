#include "engine/compare/table/table_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/base/atomic_file.h"
#include "engine/base/ordered.h"
#include "engine/base/threads.h"
#include "engine/compare/model/page_release.h"
#include "engine/compare/table/summary_sheet.h"
#include "engine/formats/tables/csv.h"
#include "engine/formats/tables/xlsx.h"

namespace msprobe::compare {
namespace {

constexpr size_t kRowsPerPart = 512;  // their text fits into the cache of one core
constexpr size_t kPartsReady = 16;

std::vector<std::string_view> Header(const TableFormat& table) {
  std::vector<std::string_view> names;
  for (const Column& column : table.columns()) names.push_back(column.name);
  return names;
}

}  // namespace

Status StreamTableCsv(const TableFormat& table,
                      const std::function<Status(std::span<const std::string_view>)>& write,
                      const TableProgress& progress, const std::function<void()>& beside) {
  formats::CsvWriter header;
  for (std::string_view name : Header(table)) header.NumberCell(name);
  header.EndRow();
  const std::string_view head = header.text();
  MSPROBE_RETURN_IF_ERROR(write({&head, 1}));
  const size_t rows = table.written_rows();
  size_t done = 0;
  OrderedParts<TextBuffer> parts(kPartsReady, [&](TextBuffer* part) {
    const std::string_view text = part->view();
    MSPROBE_RETURN_IF_ERROR(write({&text, 1}));
    done = std::min(rows, done + kRowsPerPart);
    if (progress) progress(done, rows);
    return Status::Ok();
  });
  PageRelease pages(table.comparison().target, table.comparison().golden);
  // The first thread works on `beside`, which takes longer than a part. All parts are behind it.
  const size_t first = beside ? 1 : 0;
  ThreadPool::Default().ParallelFor(first + (rows + kRowsPerPart - 1) / kRowsPerPart,
                                    [&](size_t at) {
                                      if (at < first) return beside();
                                      const size_t i = at - first;
                                      TextBuffer part = parts.Take();
                                      part.Clear();
                                      const size_t last = std::min(rows, (i + 1) * kRowsPerPart);
                                      pages.RowsDone(last - i * kRowsPerPart);
                                      for (size_t row = i * kRowsPerPart; row < last; ++row)
                                        table.AppendCsv(table.WrittenRow(row), &part);
                                      parts.Put(i, std::move(part));
                                    });
  return parts.status();
}

Status WriteTableCsv(const TableFormat& table, const std::string& path,
                     const TableProgress& progress, const std::function<void()>& beside) {
  MSPROBE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  const auto write = [&](std::span<const std::string_view> pieces) { return file.Write(pieces); };
  MSPROBE_RETURN_IF_ERROR(StreamTableCsv(table, write, progress, beside));
  return file.Commit();
}

namespace {

void FillSheetRows(const TableFormat& table, size_t first, size_t last, formats::XlsxRows* out) {
  TableRow row;
  for (size_t i = first; i < last; ++i) {
    table.Fill(table.WrittenRow(i), &row);
    out->BeginRow(table.ColorOf(table.WrittenRow(i)));
    for (const TableCell& cell : row.cells) {
      const std::string_view text = row.TextOf(cell);
      cell.kind == CellKind::kNumber ? out->SpelledCell(text) : out->TextCell(text);
    }
    out->EndRow();
  }
  out->Compress();
}

// The width of each column: that of its longest cell in the first rows, between 8 and 60
// characters.
std::vector<double> Widths(const TableFormat& table, size_t rows) {
  constexpr size_t kNarrowest = 8, kWidest = 60;
  std::vector<size_t> widths;
  for (const Column& column : table.columns()) widths.push_back(column.name.size() + 3);
  TableRow row;
  for (size_t i = 0; i < std::min<size_t>(rows, table.written_rows()); ++i) {
    table.Fill(table.WrittenRow(i), &row);
    for (size_t k = 0; k < row.cells.size(); ++k) {
      widths[k] = std::max<size_t>(widths[k], row.TextOf(row.cells[k]).size() + 1);
    }
  }
  std::vector<double> out;
  for (const size_t width : widths) {
    out.push_back(static_cast<double>(std::clamp(width, kNarrowest, kWidest)));
  }
  return out;
}

// Writes the rows [first, last) as one sheet.
Status WriteSheet(const TableFormat& table, size_t first, size_t last, const std::string& name,
                  const TableProgress& progress, formats::XlsxWriter* book) {
  constexpr size_t kSampled = 500;
  MSPROBE_RETURN_IF_ERROR(book->AddSheet({.name = name,
                                          .header = Header(table),
                                          .widths = Widths(table, kSampled),
                                          .rows = static_cast<uint32_t>(last - first)}));
  size_t done = first;
  OrderedParts<formats::XlsxRows> parts(kPartsReady, [&](formats::XlsxRows* part) {
    MSPROBE_RETURN_IF_ERROR(book->Append({part, 1}));
    done = std::min(last, done + kRowsPerPart);
    if (progress) progress(done, table.written_rows());
    return Status::Ok();
  });
  PageRelease pages(table.comparison().target, table.comparison().golden);
  const size_t count = (last - first + kRowsPerPart - 1) / kRowsPerPart;
  ThreadPool::Default().ParallelFor(count, [&](size_t i) {
    formats::XlsxRows part = parts.Take();
    const size_t from = first + i * kRowsPerPart;
    part.Start(static_cast<uint32_t>(from - first + 2));  // after the header
    pages.RowsDone(std::min(last - from, kRowsPerPart));
    FillSheetRows(table, from, std::min(last, from + kRowsPerPart), &part);
    parts.Put(i, std::move(part));
  });
  return parts.status();
}

}  // namespace

Status WriteTableXlsx(const TableFormat& table, const std::string& path,
                      const TableProgress& progress, size_t rows_per_sheet) {
  MSPROBE_ASSIGN_OR_RETURN(formats::XlsxWriter book, formats::XlsxWriter::Create(path));
  size_t first = 0;
  for (int part = 1; part == 1 || first < table.written_rows(); ++part) {
    const size_t last = std::min(table.written_rows(), first + rows_per_sheet);
    const std::string name =
        fmt::format("compare_result{}", part == 1 ? "" : fmt::format("_part_{}", part));
    MSPROBE_RETURN_IF_ERROR(WriteSheet(table, first, last, name, progress, &book));
    first = last;
  }
  MSPROBE_RETURN_IF_ERROR(WriteSummarySheet(table, &book));
  return book.Close();
}

}  // namespace msprobe::compare
