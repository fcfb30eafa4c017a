#include "engine/gradients/recorded_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/compare/align/mindspore_apis.h"
#include "engine/formats/tables/table_file.h"
#include "engine/formats/tensors/npy.h"
#include "engine/model/names.h"
#include "engine/tensor/tensor_view.h"

namespace msprobe::gradients {
namespace {

// "[16, 8]", or "[np.int64(16), np.int64(8)]" as NumPy 2 spells a list of its integers. nullopt:
// not a shape, or one of too many elements.
std::optional<std::vector<int64_t>> ParseShape(std::string_view text) {
  text = Trim(text);
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return std::nullopt;
  text = text.substr(1, text.size() - 2);
  std::vector<int64_t> shape;
  int64_t count = 1;
  for (std::string_view item : Split(text, ',')) {
    item = Trim(item);
    if (item.empty() && shape.empty()) continue;
    if (item.starts_with("np.int64(") && item.ends_with(")"))
      item = item.substr(9, item.size() - 10);
    int64_t extent = -1;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), extent);
    if (error != std::errc() || end != item.data() + item.size() || extent < 0) return std::nullopt;
    if (__builtin_mul_overflow(count, extent, &count)) return std::nullopt;
    shape.push_back(extent);
  }
  return shape;
}

struct Columns {
  size_t name = 0, norm = 0, shape = 0, max = 0, all = 0;
  std::optional<size_t> dtype;  // tables of the older tools have none
};

// The older tools spell the names of columns with and without a capital letter.
std::optional<Columns> FindColumns(std::span<const std::string_view> header) {
  Columns columns{.all = header.size()};
  const auto find = [&](std::string_view name, size_t* place) {
    const auto found = std::find_if(header.begin(), header.end(),
                                    [&](std::string_view cell) { return Lower(cell) == name; });
    *place = static_cast<size_t>(found - header.begin());
    return found != header.end();
  };
  if (!find("param_name", &columns.name) || !find("norm", &columns.norm) ||
      !find("shape", &columns.shape) || !find("max", &columns.max))
    return std::nullopt;
  size_t dtype = 0;
  if (find("dtype", &dtype)) columns.dtype = dtype;
  return columns;
}

double ToNumber(std::string_view cell) { return std::strtod(std::string(cell).c_str(), nullptr); }

Result<std::vector<GradientRow>> ReadRows(const std::string& path) {
  std::vector<GradientRow> rows;
  std::optional<Columns> columns;
  Status wrong;
  const auto sink = [&](const formats::TableLine& line) {
    if (!columns) {
      columns = FindColumns(line.cells);
      return columns.has_value();
    }
    const auto refuse = [&](Message expected, Message found) {
      wrong = InvalidDump(path)
                  .Expected("{} in row {}"_t(std::move(expected), line.number))
                  .Found(std::move(found));
      return false;
    };
    if (line.cells.size() != columns->all)
      return refuse("{} cells"_t(columns->all), fmt::format("{}", line.cells.size()));
    const std::optional<std::vector<int64_t>> shape = ParseShape(line.cells[columns->shape]);
    if (!shape) return refuse("a shape as [16, 8]"_t, Excerpt(line.cells[columns->shape]));
    GradientRow row{.parameter = std::string(line.cells[columns->name]), .shape = *shape};
    row.norm = ToNumber(line.cells[columns->norm]);
    const bool empty = std::find(shape->begin(), shape->end(), 0) != shape->end();
    row.has_nan =
        !empty && (std::isnan(row.norm) || std::isnan(ToNumber(line.cells[columns->max])));
    if (columns->dtype) row.dtype = DTypeFromTorchName(line.cells[*columns->dtype]);
    rows.push_back(std::move(row));
    return true;
  };
  MSPROBE_RETURN_IF_ERROR(formats::ReadTableFile(path, sink));
  if (!wrong.ok()) return wrong;
  if (!columns) {
    return InvalidDump(path)
        .Expected("a table of gradients, with the columns param_name, max, norm and shape"_t)
        .Found("another table"_t);
  }
  return rows;
}

std::string ArchivePath(const std::string& rank_folder, int64_t step) {
  return JoinPath(rank_folder, fmt::format("grad_directions_{}.npz", step));
}

// The name of a parameter's file of booleans: that of the older tools, or ours of a name that
// cannot be a file's name. "": there is none.
std::string DirectionFile(const std::string& folder, const std::string& parameter) {
  for (const std::string& name : {parameter + ".npy", SafeFileName(parameter, ".npy")}) {
    if (name.find('/') == std::string::npos && Exists(JoinPath(folder, name))) return name;
  }
  return "";
}

}  // namespace

bool SameShape(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  const auto without_ones = [](std::vector<int64_t> shape) {
    std::erase(shape, 1);
    return shape;
  };
  return a == b || without_ones(a) == without_ones(b);
}

Result<std::vector<int64_t>> NumbersOf(const std::string& folder, std::string_view prefix,
                                       std::string_view suffix) {
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(folder));
  std::vector<int64_t> numbers;
  for (const std::string& name : names) {
    if (!name.starts_with(prefix) || !name.ends_with(suffix)) continue;
    if (name.size() <= prefix.size() + suffix.size()) continue;
    const std::string digits =
        name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
    int64_t number = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    // "step07" is not the name of a step: two names for one number could not be told apart.
    if (error == std::errc() && number >= 0 && fmt::format("{}", number) == digits)
      numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

Result<std::vector<int64_t>> StepsOf(const std::string& rank_folder) {
  MSPROBE_ASSIGN_OR_RETURN(std::vector<int64_t> steps, NumbersOf(rank_folder, "step"));
  std::erase_if(steps, [&](int64_t step) {
    return !IsDirectory(JoinPath(rank_folder, fmt::format("step{}", step)));
  });
  MSPROBE_ASSIGN_OR_RETURN(std::vector<int64_t> packed,
                           NumbersOf(rank_folder, "grad_directions_", ".npz"));
  // The table is written last: without it a killed run did not finish its last step.
  if (!packed.empty() && !Exists(GradientTablePath(rank_folder, packed.back()))) packed.pop_back();
  steps.insert(steps.end(), packed.begin(), packed.end());
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  return steps;
}

std::string GradientTablePath(const std::string& rank_folder, int64_t step) {
  return JoinPath(rank_folder, fmt::format("grad_summary_{}.csv", step));
}

Result<std::vector<GradientRow>> ReadGradientTable(const std::string& rank_folder, int64_t step) {
  return ReadRows(GradientTablePath(rank_folder, step));
}

Result<RecordedStep> RecordedStep::Open(const std::string& rank_folder, int64_t step) {
  RecordedStep recorded;
  MSPROBE_ASSIGN_OR_RETURN(recorded.rows_, ReadGradientTable(rank_folder, step));
  for (size_t i = 0; i < recorded.rows_.size(); ++i)
    recorded.by_name_.emplace(recorded.rows_[i].parameter, i);
  const std::string packed = ArchivePath(rank_folder, step);
  if (Exists(packed)) {
    MSPROBE_ASSIGN_OR_RETURN(recorded.archive_, formats::SignArchive::Open(packed));
  } else {
    recorded.folder_ = JoinPath(rank_folder, fmt::format("step{}", step));
  }
  return recorded;
}

const GradientRow* RecordedStep::Find(std::string_view parameter) const {
  const auto found = by_name_.find(parameter);
  return found == by_name_.end() ? nullptr : &rows_[found->second];
}

const GradientRow* RecordedStep::FindPartner(const GradientRow& row,
                                             const RecordedStep& other) const {
  if (const GradientRow* same = Find(row.parameter)) return same;
  const std::string_view name = row.parameter;
  const size_t dot = name.rfind('.');
  const size_t begin = dot == std::string_view::npos ? 0 : dot + 1;
  for (const compare::ParameterNames& names : compare::OtherParameterNames()) {
    for (const auto& [here, there] : {std::pair(&names.mindspore, &names.pytorch),
                                      std::pair(&names.pytorch, &names.mindspore)}) {
      if (name.substr(begin) != *here) continue;
      const std::string wanted = std::string(name.substr(0, begin)) + *there;
      // A name that the other side has, too, is the partner of that one.
      const GradientRow* found = other.Find(wanted) == nullptr ? Find(wanted) : nullptr;
      if (found != nullptr) return found;
    }
  }
  return nullptr;
}

Result<Directions> RecordedStep::Read(const GradientRow& row) const {
  Directions directions{.shape = row.shape};
  if (archive_) {
    const auto archive = std::make_shared<const formats::SignArchive>(*archive_);
    MSPROBE_ASSIGN_OR_RETURN(const formats::SignBits bits,
                             archive->Read(row.parameter, directions.count()));
    directions.bits = bits.data;
    directions.owner = archive;
    return directions;
  }
  const std::string name = DirectionFile(folder_, row.parameter);
  if (name.empty()) {
    return InvalidDump(folder_).Expected("a file {}"_t(Excerpt(row.parameter + ".npy", 200)));
  }
  MSPROBE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::OpenBelow(folder_, name));
  const std::string path = file.path();
  MSPROBE_ASSIGN_OR_RETURN(formats::TensorFile tensor, formats::ReadNpy(std::move(file)));
  if (tensor.dtype != DType::kBool || tensor.shape != row.shape) {
    return InvalidDump(path)
        .Expected("booleans of shape {}"_t(ShapeText(row.shape)))
        .Found("{} of shape {}"_t(DTypeShortName(tensor.dtype), ShapeText(tensor.shape)));
  }
  const TensorView view = tensor.view();
  if (view.IsContiguous()) {
    directions.bytes = static_cast<const uint8_t*>(tensor.data);
    directions.owner = tensor.owner;
  } else {  // columns first: NumPy writes a transposed array like this
    std::shared_ptr<uint8_t[]> copy(new uint8_t[static_cast<size_t>(directions.count())]);
    CopyContiguous(view, copy.get());
    directions.bytes = copy.get();
    directions.owner = copy;
  }
  return directions;
}

}  // namespace msprobe::gradients
