// Command line for engine/formats, used by tests/python/test_formats.py.
//
//   formats_tool list FILE
//       prints one line for each tensor: name, dtype, shape, requires_grad, is_parameter, crc32
//   formats_tool convert FILE OUT [requires_grad] [parameter]
//       writes the file's tensor as .npy or .pt
//   formats_tool csv|xlsx OUT
//       writes a table from standard input: "t" or "n", the cell, 0x1f; rows end with 0x1e
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/base/text.h"
#include "engine/formats/archive/zip.h"
#include "engine/formats/tables/csv.h"
#include "engine/formats/tables/xlsx.h"
#include "engine/formats/tensors/npy.h"
#include "engine/formats/tensors/pt.h"

namespace msprobe::formats {
namespace {

void PrintTensor(const std::string& name, const TensorFile& tensor, bool requires_grad,
                 bool is_parameter) {
  const TensorView view = tensor.view();
  std::string bytes(static_cast<size_t>(view.numel()) * DTypeSize(view.dtype), '\0');
  CopyContiguous(view, bytes.data());
  fmt::print("{}\t{}\t{}\t{:d} {:d}\t{:08x}\n", name, DTypeShortName(view.dtype),
             ShapeText(view.dims()), requires_grad, is_parameter, Crc32(bytes));
}

Status List(const std::string& path) {
  if (path.ends_with(".npy")) {
    MSPROBE_ASSIGN_OR_RETURN(const TensorFile tensor, ReadNpy(path));
    PrintTensor("", tensor, false, false);
    return Status::Ok();
  }
  MSPROBE_ASSIGN_OR_RETURN(const PtFile file, ReadPt(path));
  for (const PtTensor& t : file.tensors)
    PrintTensor(t.name, t.tensor, t.requires_grad, t.is_parameter);
  return Status::Ok();
}

Status Convert(const std::string& from, const std::string& to,
               const std::vector<std::string>& flags) {
  MSPROBE_ASSIGN_OR_RETURN(const TensorFile tensor, ReadTensorFile(from));
  if (to.ends_with(".npy")) return WriteNpy(to, tensor.view());
  PtWriteOptions options;
  for (const std::string& flag : flags) {
    options.requires_grad = options.requires_grad || flag == "requires_grad";
    options.is_parameter = options.is_parameter || flag == "parameter";
  }
  return WritePt(to, tensor.view(), options);
}

Status WriteTable(const std::string& out, std::string_view table) {
  CsvWriter rows;
  for (std::string_view row : Split(table, '\x1e')) {
    if (row.empty()) continue;
    row.remove_suffix(1);
    for (const std::string_view cell : Split(row, '\x1f')) {
      cell[0] == 't' ? rows.TextCell(cell.substr(1)) : rows.NumberCell(cell.substr(1));
    }
    rows.EndRow();
  }
  return WriteCsv(out, {&rows, 1});
}

// The first row is the header; a row whose first cell is "red" or "yellow" is coloured.
Status Xlsx(const std::string& out, std::string_view table) {
  MSPROBE_ASSIGN_OR_RETURN(XlsxWriter book, XlsxWriter::Create(out));
  std::vector<std::string_view> rows;
  for (const std::string_view row : Split(table, '\x1e')) {
    if (!row.empty()) rows.push_back(row.substr(0, row.size() - 1));
  }
  std::vector<std::string_view> header = Split(rows.front(), '\x1f');
  for (std::string_view& cell : header) cell.remove_prefix(1);
  MSPROBE_RETURN_IF_ERROR(book.AddSheet(
      {.name = "table", .header = header, .rows = static_cast<uint32_t>(rows.size() - 1)}));
  XlsxRows piece(book.next_row());
  for (size_t i = 1; i < rows.size(); ++i) {
    const std::vector<std::string_view> cells = Split(rows[i], '\x1f');
    const std::string_view first = cells[0].substr(1);
    piece.BeginRow(first == "red"      ? RowColor::kRed
                   : first == "yellow" ? RowColor::kYellow
                                       : RowColor::kNone);
    for (const std::string_view cell : cells) {
      cell[0] == 't' ? piece.TextCell(cell.substr(1)) : piece.SpelledCell(cell.substr(1));
    }
    piece.EndRow();
  }
  piece.Compress();
  MSPROBE_RETURN_IF_ERROR(book.Append({&piece, 1}));
  return book.Close();
}

Status Run(const std::vector<std::string>& words) {
  if (words.size() == 2 && words[0] == "list") return List(words[1]);
  if (words.size() >= 3 && words[0] == "convert")
    return Convert(words[1], words[2], {words.begin() + 3, words.end()});
  if (words.size() == 2 && (words[0] == "csv" || words[0] == "xlsx")) {
    const std::string table((std::istreambuf_iterator<char>(std::cin)),
                            std::istreambuf_iterator<char>());
    return words[0] == "csv" ? WriteTable(words[1], table) : Xlsx(words[1], table);
  }
  return InvalidArgument(
      "usage: formats_tool list FILE | convert FILE OUT [FLAG...] | csv OUT | xlsx OUT"_t);
}

}  // namespace
}  // namespace msprobe::formats

int main(int argc, char** argv) {
  const msprobe::Status status = msprobe::formats::Run({argv + 1, argv + argc});
  if (!status.ok()) std::fputs(status.ToString().c_str(), stderr);
  return status.ok() ? 0 : 1;
}
