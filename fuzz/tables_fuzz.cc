// Writes any texts as cells of tables: reading the .csv gives the same as valid UTF-8, with an
// apostrophe before formulas; reading the .xlsx, too, and its parts hold only characters that XML
// allows.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/formats/archive/zip.h"
#include "engine/formats/tables/csv.h"
#include "engine/formats/tables/table_file.h"
#include "engine/formats/tables/xlsx.h"
#include "engine/formats/tables/xlsx_text.h"
#include "fuzz/memory_folder.h"
#include "fuzz/target.h"

namespace {

using Rows = std::vector<std::vector<std::string>>;

msprobe::formats::TableSink Into(Rows* rows) {
  return [rows](const msprobe::formats::TableLine& line) {
    rows->emplace_back(line.cells.begin(), line.cells.end());
    return true;
  };
}

void CheckXml(std::string_view xml) {
  for (const char c : xml) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') std::abort();
  }
}

}  // namespace

// A NUL separates two cells.
FUZZ_TARGET(tables) {
  static msprobe::MemoryFolder folder;
  const std::vector<std::string_view> cells =
      msprobe::Split(std::string_view(reinterpret_cast<const char*>(data), size), '\0');
  msprobe::formats::CsvWriter csv;
  for (const std::string_view cell : cells) csv.TextCell(cell);
  csv.EndRow();
  Rows read;
  if (!msprobe::formats::ReadCsv(csv.text(), "csv", Into(&read)).ok()) std::abort();
  if (read.empty()) read.emplace_back(1);  // an empty line is one empty cell
  if (read.size() != 1 || read[0].size() != cells.size()) std::abort();
  for (size_t i = 0; i < cells.size(); ++i) {
    std::string valid;
    msprobe::AppendValidUtf8(&valid, cells[i]);
    if (read[0][i] != valid && read[0][i] != "'" + valid) std::abort();
  }

  const std::string path = folder.path() + "/table.xlsx";
  auto book = msprobe::formats::XlsxWriter::Create(path);
  if (!book.ok() || !book->AddSheet({.name = "result", .header = {"name"}}).ok()) std::abort();
  msprobe::formats::XlsxRows rows(book->next_row());
  for (const std::string_view cell : cells) {
    rows.BeginRow();
    rows.TextCell(cell);
    rows.EndRow();
  }
  rows.Compress();
  if (!book->Append({&rows, 1}).ok() || !book->Close().ok()) std::abort();
  read.clear();
  if (!msprobe::formats::ReadTableFile(path, Into(&read)).ok()) std::abort();
  size_t next = 1;
  for (const std::string_view cell : cells) {
    if (cell.empty()) continue;  // a row without a cell is skipped
    if (next >= read.size() || read[next++][0] != msprobe::formats::XlsxText(cell)) std::abort();
  }
  const auto file = msprobe::MappedFile::Open(path);
  if (!file.ok()) std::abort();
  const auto zip = msprobe::formats::ZipReader::Open(file->bytes(), path);
  if (!zip.ok()) std::abort();
  for (const msprobe::formats::ZipEntry& entry : zip->entries()) {
    const auto content = zip->Read(entry, 64 << 20);
    if (!content.ok()) std::abort();
    CheckXml(content->bytes);
  }
  return 0;
}
