// Tables as comma-separated text, spelled as Python's csv module does (QUOTE_MINIMAL, "\n" after
// each row).
//
//   CsvWriter rows;
//   rows.TextCell("Tensor.add.0.forward"), rows.NumberCell(0.5), rows.EndRow();
//   MSPROBE_RETURN_IF_ERROR(WriteCsv("out/result.csv", {&rows, 1}));
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/base/status.h"
#include "engine/base/text_buffer.h"

namespace msprobe::formats {

// Turns the end of `text`, from `start` on, into a csv cell: as TextCell below (`guard`), or as
// NumberCell. For writers of large tables, whose cells rarely need a change.
void QuoteCsvCell(TextBuffer* text, size_t start, bool guard);

// Rows in memory. Large tables are built as several of these, one per thread, and written together.
class CsvWriter {
 public:
  void Reserve(size_t bytes) { text_.reserve(bytes); }

  // Text that comes from a dump: a name, a stack line, a message. A text that a spreadsheet would
  // run as a formula (it begins with = + - @, tab, carriage return, or a full-width = + - @) gets
  // an apostrophe in front.
  void TextCell(std::string_view text);
  // Text this program chose, written as it is apart from quoting: numbers in the file's own
  // spelling, "N/A", " inf".
  void NumberCell(std::string_view text);
  void NumberCell(double value);  // as Python's str(float): 1.0, 1e-05, nan, inf, -inf
  void IntegerCell(int64_t value);
  void EndRow();

  std::string_view text() const { return text_; }
  void Clear();  // keeps the memory

 private:
  void Separate();
  void AppendQuoted(std::string_view text, bool guard);
  std::string text_;
  size_t row_start_ = 0;
  size_t cells_ = 0;
};

// Writes the parts one after another to a temporary file and renames it: readers see the former
// file or the new one, never half.
Status WriteCsv(const std::string& path, std::span<const CsvWriter> parts);

}  // namespace msprobe::formats
