#include "engine/dump/graphs/graph_files.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "engine/base/file.h"
#include "engine/dump/graphs/graph_names.h"
#include "engine/formats/tables/table_file.h"

namespace msprobe::dump {
namespace {

// Of files whose name was too long: "<name of the file>,<the name it stands for>".
constexpr char kMappingFile[] = "mapping.csv";
constexpr std::string_view kHeader = "Op Type,Op Name,";

template <typename Number>
Number NumberOr(std::string_view text, Number otherwise) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, value);
  return !text.empty() && error == std::errc() && last == end ? value : otherwise;
}

std::map<std::string, std::string> ReadMapping(const std::string& folder) {
  std::map<std::string, std::string> names;
  const Result<MappedFile> file = MappedFile::OpenBelow(folder, kMappingFile);
  if (!file.ok()) return names;
  // A damaged line costs only the name that it gives.
  const Status ignored =
      formats::ReadCsv(file->bytes(), file->path(), [&](const formats::TableLine& line) {
        if (line.cells.size() == 2) names.emplace(line.cells[0], line.cells[1]);
        return true;
      });
  static_cast<void>(ignored);
  return names;
}

// Positions of the columns of a statistic.csv; -1: it has no such column.
class Columns {
 public:
  explicit Columns(std::span<const std::string_view> header)
      : names_(header.begin(), header.end()) {}

  int Of(std::string_view name) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    return found == names_.end() ? -1 : static_cast<int>(found - names_.begin());
  }

 private:
  std::vector<std::string> names_;
};

// What the lines of one table have in which column.
struct StatisticColumns {
  explicit StatisticColumns(const Columns& c)
      : type(c.Of("Op Type")),
        name(c.Of("Op Name")),
        time(c.Of("Timestamp")),
        io(std::max(c.Of("IO"), c.Of("Input/Output"))),
        slot(c.Of("Slot")),
        dtype(c.Of("Data Type")),
        shape(c.Of("Shape")),
        stats{c.Of("Max Value"), c.Of("Min Value"), c.Of("Avg Value"), c.Of("L2Norm Value")},
        nan(std::max(c.Of("NaN Count"), c.Of("Nan Count"))),
        pos_inf(c.Of("Positive Inf Count")),
        neg_inf(c.Of("Negative Inf Count")),
        zero(c.Of("Zero Count")),
        digest(std::max(c.Of("MD5"), c.Of("SHA1"))) {}

  // Columns without which a line says nothing.
  bool complete() const { return std::min({type, name, io, slot, dtype, shape}) >= 0; }

  int type, name, time, io, slot, dtype, shape;
  std::array<int, 4> stats;
  int nan, pos_inf, neg_inf, zero, digest;
};

GraphValue ValueOf(std::span<const std::string_view> cells, const StatisticColumns& columns,
                   std::deque<std::string>* texts) {
  const auto cell = [&](int column) {
    const auto at = static_cast<size_t>(column);
    return column >= 0 && at < cells.size() ? cells[at] : std::string_view();
  };
  const auto kept = [&](int column) -> std::string_view {
    const std::string_view text = cell(column);
    return text.empty() ? text : std::string_view(texts->emplace_back(text));
  };
  GraphValue value{.type = kept(columns.type), .name = kept(columns.name)};
  value.dtype = kept(columns.dtype);
  value.shape = kept(columns.shape);
  value.is_output = cell(columns.io) == "output";
  value.slot = NumberOr<int32_t>(cell(columns.slot), -1);
  value.time = NumberOr<uint64_t>(cell(columns.time), 0);
  for (size_t i = 0; i < value.stats.size(); ++i) value.stats[i] = kept(columns.stats[i]);
  value.counts = {
      NumberOr<int64_t>(cell(columns.nan), -1), NumberOr<int64_t>(cell(columns.pos_inf), -1),
      NumberOr<int64_t>(cell(columns.neg_inf), -1), NumberOr<int64_t>(cell(columns.zero), -1)};
  value.digest = kept(columns.digest);
  return value;
}

auto OrderOf(const GraphValue& v) { return std::tie(v.name, v.type, v.is_output, v.slot); }

}  // namespace

bool BeginsAsStatistics(std::string_view text) { return text.starts_with(kHeader); }

Status GraphFiles::ReadStatistics(const std::string& folder) {
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::OpenBelow(folder, kStatisticFile));
  if (!BeginsAsStatistics(file.bytes())) {
    return InvalidDump(file.path(), 0).Expected("the header \"Op Type,Op Name,Task ID,...\""_t);
  }
  std::optional<StatisticColumns> columns;
  const Status read =
      formats::ReadCsv(file.bytes(), file.path(), [&](const formats::TableLine& line) {
        if (!columns) {
          columns.emplace(Columns(line.cells));
          return columns->complete();
        }
        const GraphValue value = ValueOf(line.cells, *columns, &texts);
        // The last line of a run that was killed may be cut.
        if (!value.name.empty() && value.slot >= 0) values.push_back(value);
        return true;
      });
  MSPROBE_RETURN_IF_ERROR(read);
  if (!columns || !columns->complete()) {
    return InvalidDump(file.path(), 0)
        .Expected(
            "the columns \"Op Type\", \"Op Name\", \"IO\", \"Slot\", \"Data Type\", \"Shape\""_t);
  }
  return Status::Ok();
}

Status GraphFiles::Read(const std::string& folder) {
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(folder));
  const std::map<std::string, std::string> mapping = ReadMapping(folder);
  for (const std::string& name : names) {
    if (name == kMappingFile) continue;
    if (name == kStatisticFile) {
      MSPROBE_RETURN_IF_ERROR(ReadStatistics(folder));
      continue;
    }
    const std::string& file = texts.emplace_back(name);
    const auto long_name = mapping.find(name);
    const std::string& meant =
        long_name == mapping.end() ? file : texts.emplace_back(long_name->second);
    const std::optional<GraphFileName> parsed = ParseGraphFile(meant);
    if (!parsed) {
      others.push_back(name);
      continue;
    }
    has_files = true;
    values.push_back({.type = parsed->type,
                      .name = parsed->name,
                      .dtype = parsed->dtype,
                      .is_output = parsed->is_output,
                      .slot = parsed->slot,
                      .time = parsed->time,
                      .file = file});
  }
  Number();
  return Status::Ok();
}

// Numbers the runs of each operator by time, and joins a value's file with its line of the table.
void GraphFiles::Number() {
  std::stable_sort(values.begin(), values.end(), [](const GraphValue& a, const GraphValue& b) {
    return std::tuple(OrderOf(a), a.file.empty(), a.time) <
           std::tuple(OrderOf(b), b.file.empty(), b.time);
  });
  for (size_t i = 1; i < values.size(); ++i) {
    const GraphValue& before = values[i - 1];
    const bool same =
        OrderOf(before) == OrderOf(values[i]) && before.file.empty() == values[i].file.empty();
    values[i].run = same ? before.run + 1 : 0;
  }
  const auto key = [](const GraphValue& v) {
    return std::tuple(v.name, v.type, v.run, v.is_output, v.slot, v.file.empty());
  };
  std::sort(values.begin(), values.end(),
            [&](const GraphValue& a, const GraphValue& b) { return key(a) < key(b); });
  size_t kept = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool joins = kept > 0 && values[i].file.empty() && !values[kept - 1].file.empty() &&
                       OrderOf(values[i]) == OrderOf(values[kept - 1]) &&
                       values[i].run == values[kept - 1].run;
    if (!joins) {
      values[kept++] = values[i];
      continue;
    }
    GraphValue& with_file = values[kept - 1];
    with_file.shape = values[i].shape;
    with_file.stats = values[i].stats;
    with_file.counts = values[i].counts;
    with_file.digest = values[i].digest;
  }
  values.resize(kept);
}

}  // namespace msprobe::dump
