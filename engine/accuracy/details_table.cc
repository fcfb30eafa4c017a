#include "engine/accuracy/details_table.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/formats/tables/table_file.h"

namespace msprobe::accuracy {
namespace {

constexpr DetailsColumn kRequired[] = {kApiName,     kDeviceDtype,      kSmallValue,       kRmse,
                                       kMaxRelative, kMeanRelative,     kBalance,          kUnequal,
                                       kInfNan,      kRelativeFailures, kAbsoluteFailures, kMeanUlp,
                                       kUlpShare,    kThousandth};

constexpr std::string_view kHint =
    "accuracy_checking_details_TIME.csv, which the pre-check writes beside the result file";

bool IsMetric(size_t column) { return column >= kCosine && column <= kUlpShare; }

}  // namespace

bool IsBlankCell(std::string_view cell) {
  for (const char c : cell) {
    if (c != ' ' && c != '\t') return false;
  }
  return true;
}

bool ParseMetric(std::string_view cell, double* value) {
  cell = Trim(cell);
  if (cell.starts_with('+')) cell.remove_prefix(1);
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), *value);
  return error == std::errc() && end == cell.data() + cell.size();
}

Result<DetailsTable> DetailsTable::Read(const std::string& path) {
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  return Parse(file.bytes(), path);
}

Result<DetailsTable> DetailsTable::Parse(std::string_view text, const std::string& path) {
  DetailsTable table;
  table.text_.reserve(text.size() + 64);  // on the heap, and never moved: by_name_ points into it
  std::array<int, kDetailsColumns> place;
  place.fill(-1);
  size_t width = 0;
  Status wrong;
  const auto titles = [&](std::span<const std::string_view> cells) {
    width = cells.size();
    for (size_t i = 0; i < width; ++i) {
      for (size_t c = 0; c < kDetailsColumns; ++c) {
        if (cells[i] == kDetailsTitles[c]) place[c] = static_cast<int>(i);
      }
    }
    for (const DetailsColumn c : kRequired) {
      if (place[c] >= 0) continue;
      wrong = InvalidDump(path)
                  .Expected(fmt::format("a column {}", kDetailsTitles[c]))
                  .Found(fmt::format("{} columns, the first {}", width, Excerpt(cells[0])))
                  .Hint(kHint);
      return;
    }
  };
  const auto add = [&](const formats::TableLine& line) {
    if (line.cells.size() != width) {
      wrong = InvalidDump(path)
                  .Expected(fmt::format("{} cells in row {}, as in row 1", width, line.number))
                  .Found(fmt::format("{}; the file may be cut", line.cells.size()));
      return;
    }
    auto& spans = table.rows_.emplace_back();
    for (size_t c = 0; c < kDetailsColumns; ++c) {
      if (place[c] < 0) continue;
      const std::string_view cell = line.cells[static_cast<size_t>(place[c])];
      double value = 0;
      if (IsMetric(c) && !IsBlankCell(cell) && !ParseMetric(cell, &value)) {
        wrong = InvalidDump(path)
                    .Expected(fmt::format("a number in row {}, column {}", line.number,
                                          kDetailsTitles[c]))
                    .Found(Excerpt(cell));
        return;
      }
      spans[c] = {table.text_.size(), static_cast<uint32_t>(cell.size())};
      table.text_ += cell;
    }
    const std::string_view name = table.cell(table.rows_.size() - 1, kApiName);
    if (!table.by_name_.emplace(name, table.rows_.size() - 1).second) {
      wrong = InvalidDump(path)
                  .Expected("each API Name once")
                  .Found(fmt::format("{} again in row {}", Excerpt(name, 100), line.number))
                  .Hint("remove one of the rows, or run the pre-check again");
      return;
    }
  };
  MSPROBE_RETURN_IF_ERROR(formats::ReadCsv(text, path, [&](const formats::TableLine& line) {
    width == 0 ? titles(line.cells) : add(line);
    return wrong.ok();
  }));
  if (!wrong.ok()) return wrong;
  if (width == 0) return InvalidDump(path).Expected("a details file").Found("no row").Hint(kHint);
  return Result<DetailsTable>(std::move(table));
}

bool DetailsTable::IsBlank(size_t row, DetailsColumn column) const {
  return IsBlankCell(cell(row, column));
}

double DetailsTable::Number(size_t row, DetailsColumn column) const {
  double value = std::numeric_limits<double>::quiet_NaN();
  ParseMetric(cell(row, column), &value);
  return value;
}

int64_t DetailsTable::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? -1 : static_cast<int64_t>(found->second);
}

}  // namespace msprobe::accuracy
