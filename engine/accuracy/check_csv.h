// Rows of the pre-check's files, spelled as Python's csv module does: a byte order mark at the
// start of a file, "\r\n" after each row.
//
//   CheckCsv csv;                          // begins with the byte order mark
//   csv.AddRow(kResultTitles);
//   MSPROBE_RETURN_IF_ERROR(WriteFileAtomically(path, csv.text()));
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/formats/tables/csv.h"

namespace msprobe::accuracy {

class CheckCsv {
 public:
  explicit CheckCsv(bool with_mark = true) : text_(with_mark ? "\xef\xbb\xbf" : "") {}
  // A text that a spreadsheet would run as a formula gets an apostrophe; numbers below zero do not.
  template <typename Cells>
  void AddRow(const Cells& cells) {
    row_.Clear();
    for (const std::string_view cell : cells) AddCell(cell);
    row_.EndRow();
    text_ += row_.text();
    text_.back() = '\r';
    text_ += '\n';
  }
  // The rows of a table that has no mark.
  void AddRows(const CheckCsv& other) { text_ += other.text_; }
  std::string_view text() const { return text_; }

 private:
  void AddCell(std::string_view cell) {
    const bool number =
        cell.size() > 1 && cell[0] == '-' && (cell[1] == 'i' || (cell[1] >= '0' && cell[1] <= '9'));
    number ? row_.NumberCell(cell) : row_.TextCell(cell);
  }
  formats::CsvWriter row_;
  std::string text_;
};

}  // namespace msprobe::accuracy
