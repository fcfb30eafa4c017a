#include "engine/formats/xlsx.h"

#include <fmt/format.h>
#include <xlsxwriter.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/base/file.h"
#include "engine/formats/atomic_file.h"
#include "engine/formats/xlsx_text.h"

namespace msprobe {
namespace {

constexpr uint32_t kMaxRows = LXW_ROW_MAX;
constexpr size_t kMaxColumns = LXW_COL_MAX;
constexpr size_t kMaxNameCharacters = LXW_SHEETNAME_MAX;
constexpr double kColumnWidth = 18;  // characters
constexpr lxw_color_t kRedFill = 0xff0000;
constexpr lxw_color_t kYellowFill = 0xffff00;

struct Cell {
  std::string text;
  double number = 0;
  bool is_number = false;
};

}  // namespace

struct XlsxWriter::State {
  AtomicFile file;
  lxw_workbook* book = nullptr;
  lxw_format *header_format = nullptr, *red = nullptr, *yellow = nullptr;
  lxw_worksheet* sheet = nullptr;
  std::vector<lxw_worksheet*> sheets;
  std::string name;  // of the newest AddSheet
  std::vector<std::string> header;
  int part = 1;
  uint32_t row = 0, max_rows = kMaxRows;
  std::vector<Cell> cells;  // of the row being filled; the first `used`
  size_t used = 0;
  Status error;  // the first one; every later call answers it again

  ~State() {
    if (book != nullptr) lxw_workbook_free(book);
  }

  Status Failed(lxw_error code, std::string_view what) {
    if (code == LXW_NO_ERROR) return Status::Ok();
    error = Status(ErrorCode::kIo)
                .At(file.path())
                .Says(fmt::format("cannot {}: {}", what, lxw_strerror(code)));
    return error;
  }

  Cell& NextCell() {
    if (used == cells.size()) cells.emplace_back();
    return cells[used++];
  }

  Status StartSheet(const std::string& sheet_name);
  void FinishSheet();
};

XlsxWriter::XlsxWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
XlsxWriter::XlsxWriter(XlsxWriter&& other) noexcept = default;
XlsxWriter& XlsxWriter::operator=(XlsxWriter&& other) noexcept = default;
XlsxWriter::~XlsxWriter() = default;

void XlsxWriter::set_max_rows(uint32_t rows_with_header) {
  state_->max_rows = std::clamp<uint32_t>(rows_with_header, 2, kMaxRows);
}

Result<XlsxWriter> XlsxWriter::Create(const std::string& path) {
  auto state = std::make_unique<State>();
  MSPROBE_ASSIGN_OR_RETURN(state->file, AtomicFile::Create(path));
  // Rows wait in temporary files until Close(): beside the result, for /tmp may be small, or
  // memory.
  std::string directory = DirectoryName(path);
  lxw_workbook_options options{
      .constant_memory = LXW_TRUE, .tmpdir = directory.data(), .use_zip64 = LXW_TRUE};
  state->book = workbook_new_opt(state->file.temporary_path().c_str(), &options);
  if (state->book == nullptr)
    return Status(ErrorCode::kIo).At(path).Says("cannot start a workbook");
  state->header_format = workbook_add_format(state->book);
  state->red = workbook_add_format(state->book);
  state->yellow = workbook_add_format(state->book);
  if (state->header_format == nullptr || state->red == nullptr || state->yellow == nullptr) {
    return Internal("out of memory in libxlsxwriter");
  }
  format_set_bold(state->header_format);
  format_set_bg_color(state->red, kRedFill);
  format_set_bg_color(state->yellow, kYellowFill);
  return XlsxWriter(std::move(state));
}

Status XlsxWriter::AddSheet(std::string_view name, std::span<const std::string_view> header) {
  State& s = *state_;
  if (!s.error.ok()) return s.error;
  if (header.empty() || header.size() > kMaxColumns) {
    return InvalidArgument()
        .Expected(fmt::format("1 to {} columns", kMaxColumns))
        .Found(fmt::format("{}", header.size()));
  }
  const std::string clean = XlsxText(name, kMaxNameCharacters);
  const lxw_error valid = workbook_validate_sheet_name(s.book, clean.c_str());
  if (valid != LXW_NO_ERROR) {
    return InvalidArgument(
        fmt::format("{}: sheet name {}: {}", s.file.path(), Excerpt(clean), lxw_strerror(valid)));
  }
  s.FinishSheet();
  s.name = clean;
  s.header.clear();
  for (const std::string_view cell : header) s.header.push_back(XlsxText(cell));
  s.part = 1;
  return s.StartSheet(clean);
}

Status XlsxWriter::State::StartSheet(const std::string& sheet_name) {
  sheet = workbook_add_worksheet(book, sheet_name.c_str());
  if (sheet == nullptr) {
    error = Status(ErrorCode::kIo)
                .At(file.path())
                .Says("cannot add a sheet: no temporary file beside it, or no memory");
    return error;
  }
  sheets.push_back(sheet);
  worksheet_freeze_panes(sheet, 1, 0);
  const auto last = static_cast<lxw_col_t>(header.size() - 1);
  MSPROBE_RETURN_IF_ERROR(
      Failed(worksheet_set_column(sheet, 0, last, kColumnWidth, nullptr), "set a column's width"));
  for (size_t i = 0; i < header.size(); ++i) {
    MSPROBE_RETURN_IF_ERROR(Failed(worksheet_write_string(sheet, 0, static_cast<lxw_col_t>(i),
                                                          header[i].c_str(), header_format),
                                   "write a header"));
  }
  row = 1;
  return Status::Ok();
}

void XlsxWriter::State::FinishSheet() {
  if (sheet == nullptr) return;
  // Only now is the last row known. Its arguments are in range, so it cannot fail.
  worksheet_autofilter(sheet, 0, 0, row - 1, static_cast<lxw_col_t>(header.size() - 1));
  sheet = nullptr;
}

void XlsxWriter::TextCell(std::string_view text) {
  Cell& cell = state_->NextCell();
  AssignXlsxText(text, kMaxXlsxCharacters, &cell.text);
  cell.is_number = false;
}

void XlsxWriter::NumberCell(double value) {
  if (!std::isfinite(value))
    return TextCell(std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
  Cell& cell = state_->NextCell();
  cell.number = value;
  cell.is_number = true;
}

Status XlsxWriter::EndRow(RowColor color) {
  State& s = *state_;
  if (!s.error.ok()) return s.error;
  const size_t used = std::exchange(s.used, 0);
  if (s.sheet == nullptr) return Internal("a row before AddSheet, or after Close");
  if (used > kMaxColumns)
    return InvalidArgument(
        fmt::format("a row of {} cells; Excel has {} columns", used, kMaxColumns));
  if (s.row == s.max_rows) {
    s.FinishSheet();
    const std::string suffix = fmt::format("_part_{}", ++s.part);
    MSPROBE_RETURN_IF_ERROR(
        s.StartSheet(XlsxText(s.name, kMaxNameCharacters - suffix.size()) + suffix));
  }
  lxw_format* format = color == RowColor::kRed      ? s.red
                       : color == RowColor::kYellow ? s.yellow
                                                    : nullptr;
  for (size_t i = 0; i < used; ++i) {
    const auto column = static_cast<lxw_col_t>(i);
    const Cell& cell = s.cells[i];
    if (cell.is_number) {
      MSPROBE_RETURN_IF_ERROR(s.Failed(
          worksheet_write_number(s.sheet, s.row, column, cell.number, format), "write a cell"));
    } else if (!cell.text.empty() || format != nullptr) {
      const lxw_error code =
          cell.text.empty()
              ? worksheet_write_blank(s.sheet, s.row, column, format)
              : worksheet_write_string(s.sheet, s.row, column, cell.text.c_str(), format);
      MSPROBE_RETURN_IF_ERROR(s.Failed(code, "write a cell"));
    }
  }
  ++s.row;
  return Status::Ok();
}

Status XlsxWriter::Close() {
  State& s = *state_;
  if (!s.error.ok()) return s.error;
  if (s.book == nullptr) return Internal("a workbook closed twice");
  if (s.sheets.empty()) return Internal("a workbook without a sheet");
  s.FinishSheet();
  // libxlsxwriter does not look whether its rows reached the temporary files.
  for (lxw_worksheet* sheet : s.sheets) {
    if (sheet->optimize_tmpfile != nullptr &&
        (std::fflush(sheet->optimize_tmpfile) != 0 || std::ferror(sheet->optimize_tmpfile) != 0)) {
      s.error = Status(ErrorCode::kIo)
                    .At(s.file.path())
                    .Says("cannot write the rows: no space left beside it");
      return s.error;
    }
  }
  MSPROBE_RETURN_IF_ERROR(
      s.Failed(workbook_close(std::exchange(s.book, nullptr)), "write the workbook"));
  return s.file.Commit();
}

}  // namespace msprobe
