#include "engine/accuracy/details_table.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <functional>
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

Message Hint() {
  return "msprobe run_ut -api_info dump.json -o FOLDER writes accuracy_checking_details_TIME.csv"_t;
}

// What to type in place of `path`: the newest details file of a folder, or the details file beside
// a result file.
Message HintFor(const std::string& path) {
  const std::string name = BaseName(path);
  const bool folder = IsDirectory(path);
  const std::string among = folder ? path : DirectoryName(path);
  std::string wanted = "accuracy_checking_details";
  if (constexpr std::string_view kResult = "accuracy_checking_result"; name.starts_with(kResult))
    wanted += name.substr(kResult.size());
  std::string found;
  if (folder || wanted.ends_with(".csv")) {
    const Result<std::vector<std::string>> names = ListDirectory(among);
    for (const std::string& other : names.ok() ? *names : std::vector<std::string>()) {
      if (other.starts_with(wanted) && other.ends_with(".csv") && other > found) found = other;
    }
  }
  return found.empty() ? Hint() : "did you mean {}?"_t(JoinPath(among, found));
}

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
  if (!Exists(path)) {
    return NotFound(path)
        .Expected("the accuracy_checking_details_TIME.csv of a device"_t)
        .Hint(Hint());
  }
  if (IsDirectory(path)) {
    return InvalidDump(path)
        .Expected("the accuracy_checking_details_TIME.csv of a device"_t)
        .Found("a folder"_t)
        .Hint(HintFor(path));
  }
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  return Parse(file.bytes(), path);
}

Result<DetailsTable> DetailsTable::Parse(std::string_view text, const std::string& path) {
  if (text.size() > std::numeric_limits<uint32_t>::max())
    return InvalidDump(path)
        .Expected("a file of less than 4 GiB"_t)
        .Found("a larger one"_t)
        .Hint(Hint());
  DetailsTable table;
  table.rows_.reserve(text.size() / 200);  // bytes of a usual row
  table.text_.reserve(text.size());
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
                  .Expected("a column {}"_t(kDetailsTitles[c]))
                  .Found(width == 1 ? "1 column, the first {}"_t(Excerpt(cells[0]))
                                    : "{} columns, the first {}"_t(width, Excerpt(cells[0])))
                  .Hint(HintFor(path));
      return;
    }
  };
  const auto add = [&](const formats::TableLine& line) {
    if (line.cells.size() != width) {
      wrong = InvalidDump(path)
                  .Expected("{} cells in row {}, as in row 1"_t(width, line.number))
                  .Found("{}; the file may be cut"_t(line.cells.size()))
                  .Hint(Hint());
      return;
    }
    auto& starts = table.rows_.emplace_back();
    for (size_t c = 0; c < kDetailsColumns; ++c) {
      starts[c] = static_cast<uint32_t>(table.text_.size());
      if (place[c] < 0) continue;
      const std::string_view cell = line.cells[static_cast<size_t>(place[c])];
      double value = 0;
      if (IsMetric(c) && !IsBlankCell(cell) && !ParseMetric(cell, &value)) {
        wrong = InvalidDump(path)
                    .Expected("a number in row {}, column {}"_t(line.number, kDetailsTitles[c]))
                    .Found(Excerpt(cell));
        return;
      }
      table.text_ += cell;
    }
    starts[kDetailsColumns] = static_cast<uint32_t>(table.text_.size());
  };
  MSPROBE_RETURN_IF_ERROR(formats::ReadCsv(text, path, [&](const formats::TableLine& line) {
    width == 0 ? titles(line.cells) : add(line);
    return wrong.ok();
  }));
  if (!wrong.ok()) return wrong;
  if (width == 0)
    return InvalidDump(path).Expected("a details file"_t).Found("no row"_t).Hint(Hint());
  table.places_.assign(std::bit_ceil(2 * table.rows() + 2), 0);
  for (size_t row = 0; row < table.rows(); ++row) {
    const std::string_view name = table.cell(row, kApiName);
    uint32_t& entry = table.places_[table.PlaceOf(name)];
    if (entry != 0) {
      return InvalidDump(path)
          .Expected("each API Name once"_t)
          .Found("{} again in row {}"_t(Excerpt(name, 100), row + 2))
          .Hint("remove one of the rows, or run the pre-check again"_t);
    }
    entry = static_cast<uint32_t>(row + 1);
  }
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

size_t DetailsTable::PlaceOf(std::string_view name) const {
  const size_t mask = places_.size() - 1;
  size_t at = std::hash<std::string_view>()(name) & mask;
  while (places_[at] != 0 && cell(places_[at] - 1, kApiName) != name) at = (at + 1) & mask;
  return at;
}

int64_t DetailsTable::Find(std::string_view name) const {
  return static_cast<int64_t>(places_[PlaceOf(name)]) - 1;
}

}  // namespace msprobe::accuracy
