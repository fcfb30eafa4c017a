// Any texts as cells of a table: the .csv reads back as valid UTF-8, but for the apostrophe
// before formulas; the .xlsx is an archive whose sheet holds only characters that XML allows.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/formats/csv.h"
#include "engine/formats/xlsx.h"
#include "engine/formats/zip.h"
#include "fuzz/memory_folder.h"

namespace {

// The cells of one row, as a reader of RFC 4180 sees them.
std::vector<std::string> CsvCells(std::string_view row) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (size_t i = 0; i < row.size(); ++i) {
    if (quoted) {
      if (row[i] != '"') {
        cells.back() += row[i];
      } else if (i + 1 < row.size() && row[i + 1] == '"') {
        cells.back() += row[++i];
      } else {
        quoted = false;
      }
    } else if (row[i] == '"') {
      quoted = true;
    } else if (row[i] == ',') {
      cells.emplace_back();
    } else if (row[i] != '\n') {
      cells.back() += row[i];
    }
  }
  return cells;
}

void CheckXml(std::string_view xml) {
  for (const char c : xml) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') std::abort();
  }
}

}  // namespace

// A NUL parts two cells.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static msprobe::MemoryFolder folder;
  const std::vector<std::string_view> cells =
      msprobe::Split(std::string_view(reinterpret_cast<const char*>(data), size), '\0');
  msprobe::CsvWriter csv;
  for (const std::string_view cell : cells) csv.TextCell(cell);
  csv.EndRow();
  const std::vector<std::string> read = CsvCells(csv.text());
  if (read.size() != cells.size()) std::abort();
  for (size_t i = 0; i < cells.size(); ++i) {
    std::string valid;
    msprobe::AppendValidUtf8(&valid, cells[i]);
    if (read[i] != valid && read[i] != "'" + valid) std::abort();
  }

  const std::string path = folder.path() + "/table.xlsx";
  auto book = msprobe::XlsxWriter::Create(path);
  if (!book.ok()) std::abort();
  const std::string_view header[] = {"name"};
  if (!book->AddSheet("result", header).ok()) std::abort();
  for (const std::string_view cell : cells) {
    book->TextCell(cell);
    if (!book->EndRow().ok()) std::abort();
  }
  if (!book->Close().ok()) std::abort();
  const auto file = msprobe::MappedFile::Open(path);
  if (!file.ok()) std::abort();
  const auto zip = msprobe::ZipReader::Open(file->bytes(), path);
  if (!zip.ok()) std::abort();
  for (const msprobe::ZipEntry& entry : zip->entries()) {
    const auto content = zip->Read(entry, 64 << 20);
    if (!content.ok()) std::abort();
    CheckXml(content->bytes);
  }
  return 0;
}
