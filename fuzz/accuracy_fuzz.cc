// Reads any bytes as a details file of the accuracy pre-check, and as a file of standards. A
// details file that is one is joined with itself by all rules: no row is lost, and the files can be
// read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/accuracy/precision_compare.h"
#include "engine/formats/tables/table_file.h"
#include "fuzz/target.h"

namespace {

using namespace msprobe::accuracy;

size_t RowsOf(std::string_view text, size_t cells) {
  size_t rows = 0;
  const msprobe::Status read =
      msprobe::formats::ReadCsv(text, "csv", [&](const msprobe::formats::TableLine& line) {
        if (line.cells.size() != cells) std::abort();
        ++rows;
        return true;
      });
  if (!read.ok()) std::abort();
  return rows;
}

}  // namespace

FUZZ_TARGET(accuracy) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto standards = Standards::Parse(text, "mine.yaml");
  if (!standards.ok() && standards.status().code() != msprobe::ErrorCode::kInvalidConfig)
    std::abort();
  const auto table = DetailsTable::Parse(text, "details.csv");
  if (!table.ok()) {
    if (table.status().message().find("details.csv") == std::string::npos) std::abort();
    return 0;
  }
  for (const Rules rules : {Rules::kOurs, Rules::k1, Rules::k8, Rules::k26}) {
    const auto joined = ComparePrecision(*table, *table, {.rules = rules});
    if (!joined.ok() || joined->outputs.size() != table->rows()) std::abort();
    if (RowsOf(joined->details.text(), kComparedColumns) != table->rows() + 1) std::abort();
    if (RowsOf(joined->result.text(), kOlderResultColumns) != joined->calls.size() + 1)
      std::abort();
  }
  return 0;
}
