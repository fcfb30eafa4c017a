#include "engine/operator_dumps/batch_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/threads.h"
#include "engine/formats/tables/csv.h"
#include "engine/kernels/diff.h"
#include "engine/kernels/stats.h"
#include "engine/operator_dumps/operator_files.h"
#include "engine/operator_dumps/operator_names.h"

namespace msprobe::operator_dumps {
namespace {

using formats::AscendTensor;

// Where one tensor of one side is. Files are opened again to compare: a process may map some 65,000
// files, and a dump can have more.
struct Place {
  OperatorName name;
  std::string path;
  size_t index = 0;  // in the file
  Message problem;   // the file could not be read
};

struct Side {
  AscendTensor tensor;
  kernels::Stats stats;
};

struct Folder {
  std::map<std::string, std::vector<Place>, std::less<>> by_key;  // each in the order of time
  std::vector<std::string> keys;                                  // in the order of the files
  std::vector<std::string> others;
};

Result<Folder> ReadFolder(const std::string& path) {
  MSPROBE_ASSIGN_OR_RETURN(const OperatorFolder listed, ListOperatorFiles(path));
  if (listed.files.empty()) {
    return NotFound(path)
        .Expected("dump files of CANN, or .npy, .pt or .safetensors files"_t)
        .Found("{} other files"_t(listed.others.size()));
  }
  Folder folder;
  folder.others = listed.others;
  const auto add = [&](Place place) {
    auto [at, is_new] = folder.by_key.try_emplace(place.name.key);
    if (is_new) folder.keys.push_back(place.name.key);
    at->second.push_back(std::move(place));
  };
  const std::string root = IsDirectory(path) ? path : DirectoryName(path);
  for (const std::string& file : listed.files) {
    const std::string full = JoinPath(root, file);
    const Result<std::vector<OperatorValue>> values = ReadOperatorFile(full);
    if (!values.ok()) {
      add({OperatorName(file), full, 0, values.status().AsMessage()});
      continue;
    }
    for (size_t i = 0; i < values->size(); ++i) {
      const std::string& suffix = (*values)[i].suffix;
      add({OperatorName(suffix.empty() ? file : file + "." + suffix), full, i, {}});
    }
  }
  for (auto& [key, places] : folder.by_key) {
    std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
      return OperatorName::Before(a.name, b.name);
    });
  }
  return folder;
}

Result<Side> Read(const Place& place) {
  if (!place.problem.empty()) return Unsupported(place.problem);
  MSPROBE_ASSIGN_OR_RETURN(std::vector<OperatorValue> values, ReadOperatorFile(place.path));
  if (place.index >= values.size()) return Unsupported("the file changed while it was compared"_t);
  Side side{.tensor = std::move(values[place.index].tensor), .stats = {}};
  if (!side.tensor.problem.empty()) return Unsupported(side.tensor.problem);
  side.stats = kernels::ComputeStats(side.tensor.elements.view(), &ThreadPool::Default());
  return side;
}

bool SameBytes(const TensorView& a, const TensorView& b) {
  const size_t bytes = static_cast<size_t>(a.numel()) * DTypeSize(a.dtype);
  if (bytes == 0) return true;
  if (a.IsContiguous() && b.IsContiguous()) return std::memcmp(a.data, b.data, bytes) == 0;
  std::vector<char> left(bytes), right(bytes);
  CopyContiguous(a, left.data());
  CopyContiguous(b, right.data());
  return left == right;
}

std::string Described(const AscendTensor& tensor) {
  return fmt::format("{}{} {}", tensor.layout ? tensor.layout_name + " " : "",
                     DTypeShortName(tensor.elements.dtype), ShapeText(tensor.elements.shape));
}

// Whether the elements stand in the same order, so that they can be compared one by one.
bool SameOrder(const AscendTensor& a, const AscendTensor& b) {
  const bool same_layout = !a.layout || !b.layout || a.layout == b.layout;
  return same_layout && a.elements.shape == b.elements.shape;
}

void Compare(const Side& target, const Side& golden, BatchRow* row) {
  const TensorView a = target.tensor.elements.view(), b = golden.tensor.elements.view();
  if (!SameOrder(target.tensor, golden.tensor)) {
    row->message = fmt::format("not compared: {} against {}", Described(target.tensor),
                               Described(golden.tensor));
    return;
  }
  row->equal = a.dtype == b.dtype && SameBytes(a, b);
  const Result<kernels::Diff> diff = kernels::ComputeDiff(a, b, &ThreadPool::Default());
  if (!diff.ok()) {
    row->message = diff.status().message();
    return;
  }
  row->compared = true;
  const bool none = a.numel() == 0;
  row->max_abs_error = none ? 0 : diff->max_abs_error;
  row->max_rel_error = none ? 0 : diff->max_rel_error;
  if (a.dtype != b.dtype)
    row->message = fmt::format("{} against {}", DTypeShortName(a.dtype), DTypeShortName(b.dtype));
  // NaN never counts as equal.
  if (diff->nonfinite_mismatch > 0 || target.stats.nan > 0 || golden.stats.nan > 0) {
    row->max_abs_error = row->max_rel_error = std::numeric_limits<double>::quiet_NaN();
    row->message =
        fmt::format("NaN or infinite: {} elements against {}, {} of another kind",
                    diff->nonfinite_target, diff->nonfinite_golden, diff->nonfinite_mismatch);
  }
}

BatchRow RowOf(const Place* target, const Place* golden) {
  BatchRow row;
  std::optional<Side> sides[2];
  for (const Place* place : {target, golden}) {
    if (place == nullptr) continue;
    const bool is_target = place == target;
    (is_target ? row.target : row.golden) = place->name.path;
    Result<Side> side = Read(*place);
    if (!side.ok()) {
      if (!row.message.empty()) row.message += "; ";
      row.message += (is_target ? "target: " : "golden: ") + side.status().message();
      continue;
    }
    (is_target ? row.target_mean : row.golden_mean) = side->stats.mean;
    (is_target ? row.has_target_mean : row.has_golden_mean) = true;
    sides[is_target ? 0 : 1] = std::move(*side);
  }
  if (target == nullptr || golden == nullptr) {
    if (!row.message.empty()) row.message += "; ";
    row.message += target == nullptr ? "only in the golden folder" : "only in the target folder";
  } else if (sides[0] && sides[1]) {
    Compare(*sides[0], *sides[1], &row);
  }
  return row;
}

}  // namespace

Result<BatchComparison> CompareOperatorFolders(const std::string& target,
                                               const std::string& golden) {
  MSPROBE_ASSIGN_OR_RETURN(const Folder ours, ReadFolder(target));
  MSPROBE_ASSIGN_OR_RETURN(const Folder theirs, ReadFolder(golden));
  BatchComparison both;
  const auto add = [&](const Place* a, const Place* b) {
    const BatchRow& row = both.rows.emplace_back(RowOf(a, b));
    const bool pair = a != nullptr && b != nullptr;
    both.unpaired += pair ? 0 : 1;
    both.not_compared += pair && !row.compared ? 1 : 0;
    both.unequal += row.compared && (!row.equal || std::isnan(row.max_abs_error)) ? 1 : 0;
  };
  for (const std::string& key : ours.keys) {
    const std::vector<Place>& left = ours.by_key.find(key)->second;
    const auto found = theirs.by_key.find(key);
    const size_t partners = found == theirs.by_key.end() ? 0 : found->second.size();
    for (size_t i = 0; i < left.size(); ++i)
      add(&left[i], i < partners ? &found->second[i] : nullptr);
  }
  for (const std::string& key : theirs.keys) {
    const std::vector<Place>& right = theirs.by_key.find(key)->second;
    const auto found = ours.by_key.find(key);
    const size_t partners = found == ours.by_key.end() ? 0 : found->second.size();
    for (size_t i = partners; i < right.size(); ++i) add(nullptr, &right[i]);
  }
  for (const std::string& name : ours.others) both.left_out.push_back(JoinPath(target, name));
  for (const std::string& name : theirs.others) both.left_out.push_back(JoinPath(golden, name));
  return both;
}

Status WriteBatchTable(const BatchComparison& comparison, const std::string& path) {
  formats::CsvWriter rows;
  for (const char* title : {"NPU File Name", "Bench File Name", "Mean", "Bench Mean",
                            "Md5 Consistency", "Max Abs Error", "Max Relative Error", "Message"})
    rows.NumberCell(title);
  rows.EndRow();
  const auto number = [&](bool known, double value) {
    if (known)
      rows.NumberCell(value);
    else
      rows.NumberCell("N/A");
  };
  for (const BatchRow& row : comparison.rows) {
    rows.TextCell(row.target.empty() ? "N/A" : row.target);
    rows.TextCell(row.golden.empty() ? "N/A" : row.golden);
    number(row.has_target_mean, row.target_mean);
    number(row.has_golden_mean, row.golden_mean);
    rows.NumberCell(row.equal ? "True" : "False");
    number(row.compared, row.max_abs_error);
    number(row.compared, row.max_rel_error);
    rows.TextCell(row.message);
    rows.EndRow();
  }
  return formats::WriteCsv(path, {&rows, 1});
}

}  // namespace msprobe::operator_dumps
