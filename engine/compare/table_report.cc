#include "engine/compare/table_report.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "engine/base/threads.h"
#include "engine/formats/atomic_file.h"
#include "engine/formats/csv.h"
#include "engine/formats/xlsx.h"

namespace msprobe {
namespace {

constexpr size_t kRowsPerPart = 1024;
constexpr size_t kPartsPerThread = 4;

std::vector<std::string_view> Header(const TableFormat& table) {
  std::vector<std::string_view> names;
  for (const Column& column : table.columns()) names.push_back(column.name);
  return names;
}

// Most cells are numbers and words that never need quotes: these are appended as they are, the
// others by CsvWriter's rules.
void FormatPart(const TableFormat& table, size_t first, size_t last, std::string* out) {
  TableRow row;
  CsvWriter quoted;
  for (size_t i = first; i < last; ++i) {
    table.Fill(i, &row);
    bool comma = false;
    for (const TableCell& cell : row.cells) {
      if (comma) *out += ',';
      comma = true;
      std::string_view text = row.TextOf(cell);
      if (cell.kind == CellKind::kText || cell.kind == CellKind::kSentence) {
        quoted.Clear();
        cell.kind == CellKind::kText ? quoted.TextCell(text) : quoted.NumberCell(text);
        text = quoted.text();
      }
      *out += text;
    }
    *out += '\n';
  }
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
  ThreadPool& pool = ThreadPool::Default();
  std::vector<std::string> parts(kPartsPerThread * std::max<size_t>(1, pool.threads()));
  std::vector<std::string_view> texts;
  const size_t rows = table.rows(), rows_per_wave = parts.size() * kRowsPerPart;
  for (size_t start = 0; start < rows; start += rows_per_wave) {
    const size_t end = std::min(rows, start + rows_per_wave);
    const size_t count = (end - start + kRowsPerPart - 1) / kRowsPerPart;
    pool.ParallelFor(count, [&](size_t i) {
      parts[i].clear();
      const size_t first = start + i * kRowsPerPart;
      FormatPart(table, first, std::min(end, first + kRowsPerPart), &parts[i]);
    });
    texts.clear();
    for (size_t i = 0; i < count; ++i) texts.push_back(parts[i]);
    MSPROBE_RETURN_IF_ERROR(write(texts));
    if (progress) progress(end, rows);
  }
  return Status::Ok();
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
    const OldResult result = table.ResultOf(i);
    MSPROBE_RETURN_IF_ERROR(book.EndRow(result == OldResult::kError     ? RowColor::kRed
                                        : result == OldResult::kWarning ? RowColor::kYellow
                                                                        : RowColor::kNone));
    if (progress && i % 8192 == 0) progress(i, table.rows());
  }
  return book.Close();
}

}  // namespace msprobe
