// Tables as an Excel workbook. Rows are composed and compressed in pieces, on any thread, and
// written in order.
//
//   MSPROBE_ASSIGN_OR_RETURN(XlsxWriter book, XlsxWriter::Create("out/result.xlsx"));
//   MSPROBE_RETURN_IF_ERROR(book.AddSheet({.name = "result", .header = header, .rows = 1}));
//   XlsxRows rows(book.next_row());
//   rows.BeginRow(RowColor::kRed), rows.TextCell("Tensor.add.0"), rows.NumberCell(0.5);
//   rows.EndRow();
//   rows.Compress();
//   MSPROBE_RETURN_IF_ERROR(book.Append({&rows, 1}));
//   MSPROBE_RETURN_IF_ERROR(book.Close());                      // now the file appears
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::formats {

enum class RowColor : uint8_t { kNone, kRed, kYellow, kGrey, kBold };

inline constexpr uint32_t kMaxXlsxRows = 1'048'576;  // of a sheet, the header among them
inline constexpr size_t kMaxXlsxColumns = 16'384;

// Consecutive rows of a sheet. A text is always a text cell, even if it looks like a formula, a
// link or a number. A text over Excel's limit of 32,767 characters is cut and ends in " [cut]";
// bytes that are not UTF-8 become U+FFFD. Numbers Excel cannot hold (NaN, infinities) are written
// as the texts nan, inf, -inf.
class XlsxRows {
 public:
  explicit XlsxRows(uint32_t first_row = 2) : row_(first_row) {}  // numbers from 1
  void Start(uint32_t first_row);  // removes all rows, keeps the memory

  void BeginRow(RowColor color = RowColor::kNone);
  void TextCell(std::string_view text);
  void NumberCell(double value);
  // A number as it is spelled; becomes a text cell when the spelling is not a number, or has more
  // digits than a cell can hold.
  void SpelledCell(std::string_view text);
  void EndRow();

  // Compresses the rows; to be called before XlsxWriter::Append.
  void Compress();

 private:
  friend class XlsxWriter;
  void BeginCell();
  uint32_t row_;
  RowColor color_ = RowColor::kNone;
  size_t column_ = 0, columns_ = 0;  // of this row; the largest number of columns of any row
  std::string xml_, clean_, deflated_;
  uint32_t crc32_ = 0;
};

struct XlsxSheet {
  std::string_view name;
  std::vector<std::string_view> header;  // bold, frozen, with a filter on each column; may be empty
  std::vector<double> widths;            // of columns, in characters; missing ones get a default
  uint32_t rows = 0;                     // number of rows that will be appended, without the header
};

// Not for two threads at once.
class XlsxWriter {
 public:
  static Result<XlsxWriter> Create(const std::string& path);
  XlsxWriter(XlsxWriter&& other) noexcept;
  XlsxWriter& operator=(XlsxWriter&& other) noexcept;
  ~XlsxWriter();  // without Close(): leaves nothing behind

  // Starts a sheet; rows go to the newest one. Names are cut to 31 characters; those Excel refuses,
  // and names that are there already, are kInvalidArgument.
  Status AddSheet(const XlsxSheet& sheet);
  uint32_t next_row() const;  // number of the row that comes next
  // Compressed pieces in order.
  Status Append(std::span<const XlsxRows> pieces);
  Status Close();

 private:
  struct State;
  explicit XlsxWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace msprobe::formats
