// Tables as an Excel workbook, written row by row in constant memory.
//
//   MSPROBE_ASSIGN_OR_RETURN(XlsxWriter book, XlsxWriter::Create("out/result.xlsx"));
//   MSPROBE_RETURN_IF_ERROR(book.AddSheet("result", header));   // header: bold, frozen, with a
//   filter on each column book.TextCell("Tensor.add.0.forward"), book.NumberCell(0.5);
//   MSPROBE_RETURN_IF_ERROR(book.EndRow(RowColor::kRed));
//   MSPROBE_RETURN_IF_ERROR(book.Close());                      // only now does the file exist
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "engine/base/status.h"

namespace msprobe {

enum class RowColor { kNone, kRed, kYellow };

// Text is always text: a name that looks like a formula, a link or a number stays what it is. A
// text over Excel's limit of 32,767 characters is cut and ends in " [cut]"; bytes that are not
// UTF-8 become U+FFFD. Numbers Excel cannot hold (NaN, infinities) are written as the texts nan,
// inf, -inf. A sheet with more rows than Excel has (1,048,576 with the header) goes on in sheets
// "<name>_part_2", "<name>_part_3", ..., each with the header. Not for two threads at once.
class XlsxWriter {
 public:
  static Result<XlsxWriter> Create(const std::string& path);
  XlsxWriter(XlsxWriter&& other) noexcept;
  XlsxWriter& operator=(XlsxWriter&& other) noexcept;
  ~XlsxWriter();  // without Close(): leaves nothing behind

  // Starts a sheet; rows go to the newest one. Names are cut to 31 characters; those Excel refuses
  // are kInvalidArgument.
  Status AddSheet(std::string_view name, std::span<const std::string_view> header);
  void TextCell(std::string_view text);
  void NumberCell(double value);
  Status EndRow(RowColor color = RowColor::kNone);
  Status Close();

  // Smaller sheets, for tests.
  void set_max_rows(uint32_t rows_with_header);

 private:
  struct State;
  explicit XlsxWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace msprobe
