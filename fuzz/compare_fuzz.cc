// Reads any bytes as two dumps. If both can be read, compares them and writes every report, with
// the table of each generation.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "engine/compare/compare.h"
#include "engine/compare/report/report_json.h"
#include "engine/compare/report/report_terminal.h"
#include "engine/compare/table/advisor.h"
#include "engine/compare/table/table_report.h"
#include "engine/dump/read/reader.h"
#include "engine/formats/text/json.h"
#include "fuzz/memory_folder.h"
#include "fuzz/target.h"
#include "fuzz/tensor_check.h"

namespace {

void CheckTable(const msprobe::compare::Comparison& comparison, int generation) {
  const msprobe::compare::TableOptions options{
      .generation = static_cast<msprobe::compare::Generation>(generation),
      .highlight = true,
      .half_cosine = true};
  const msprobe::compare::TableFormat table(comparison, options);
  size_t lines = 0;
  const auto count = [&](std::span<const std::string_view> pieces) {
    for (const std::string_view piece : pieces) lines += piece.size();
    return msprobe::Status::Ok();
  };
  if (!msprobe::compare::StreamTableCsv(table, count).ok() || lines == 0) std::abort();
  if (msprobe::compare::AdvisorText(comparison, table, options.generation).empty()) std::abort();
}

}  // namespace

// The bytes before the first 0x1e are the target, the others the golden.
FUZZ_TARGET(compare) {
  static msprobe::MemoryFolder folder;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t end = text.find('\x1e');
  folder.Set("target/dump.json", text.substr(0, end));
  folder.Set("golden/dump.json",
             end == std::string_view::npos ? std::string_view() : text.substr(end + 1));
  auto target = msprobe::dump::ReadDump(folder.path() + "/target");
  auto golden = msprobe::dump::ReadDump(folder.path() + "/golden");
  if (!target.ok() || !golden.ok()) return 0;
  const auto result = msprobe::compare::Compare(std::move(*target), std::move(*golden));
  if (!result.ok()) {
    if (result.status().code() != msprobe::ErrorCode::kInvalidArgument) std::abort();
    return 0;
  }
  if (msprobe::compare::TerminalReport(*result).empty()) std::abort();
  const std::string report = msprobe::compare::JsonReport(*result);
  msprobe::formats::JsonCursor json(report);
  if (!json.Skip()) std::abort();
  for (int i = 0; i <= static_cast<int>(msprobe::compare::Generation::k26); ++i)
    CheckTable(*result, i);
  return 0;
}
