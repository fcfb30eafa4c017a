// Reads any bytes as a csv table, as a workbook, and as the sheet and the shared strings of a
// workbook: the result is an error, or rows within the limits.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "engine/formats/archive/zip.h"
#include "engine/formats/tables/table_file.h"
#include "engine/formats/tables/xlsx.h"
#include "fuzz/target.h"
#include "fuzz/tensor_check.h"

namespace {

bool CheckLine(const msprobe::formats::TableLine& line) {
  if (line.cells.empty() || line.cells.size() > 65536) std::abort();
  size_t bytes = 0;
  for (const std::string_view cell : line.cells) bytes += cell.size();
  return bytes < (1u << 30);
}

std::string Workbook(std::string_view sheet, std::string_view strings) {
  msprobe::formats::ZipComposer zip;
  zip.Add("xl/workbook.xml", "<workbook><sheet name='s' r:id='1'/></workbook>");
  zip.Add("xl/_rels/workbook.xml.rels",
          "<a><Relationship Id='1' Target='worksheets/sheet1.xml'/></a>");
  zip.Add("xl/worksheets/sheet1.xml", sheet);
  zip.Add("xl/sharedStrings.xml", strings);
  zip.Finish();
  return zip.Take();
}

void Judge(const msprobe::Status& status) {
  if (!status.ok()) msprobe::CheckRefusal(status, "fuzz");
}

}  // namespace

// A NUL separates the sheet from the shared strings.
FUZZ_TARGET(table_file) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Judge(msprobe::formats::ReadCsv(bytes, "fuzz", CheckLine));
  Judge(msprobe::formats::ReadXlsx(bytes, "fuzz", CheckLine));
  const std::string_view sheet = bytes.substr(0, bytes.find('\0'));
  const std::string_view strings = sheet.size() < size ? bytes.substr(sheet.size() + 1) : "<sst/>";
  Judge(msprobe::formats::ReadXlsx(Workbook(sheet, strings), "fuzz", CheckLine));
  return 0;
}
