#include "engine/key_data/key_data_compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/formats/tables/xlsx.h"
#include "engine/formats/tensors/npy.h"
#include "engine/kernels/chunk_reader.h"
#include "engine/model/names.h"
#include "engine/tensor/float_formats.h"

namespace msprobe::key_data {
namespace {

constexpr char kExtension[] = ".npy";

// One saved tensor: step, rank, micro step, and its index in a list or name in a dictionary.
struct Place {
  int64_t step = 0, rank = 0, micro_step = 0;
  std::string id = "0";
  bool operator<(const Place& other) const {
    const auto numbers = [](const Place& p) { return std::tuple(p.step, p.rank, p.micro_step); };
    return numbers(*this) != numbers(other) ? numbers(*this) < numbers(other)
                                            : NaturalLess(id, other.id);
  }
};
using Values = std::map<Place, std::string>;  // and their files

// "log_prob.2.npy" of key "log_prob" is "2", "log_prob.npy" is "0".
std::string IdOf(std::string_view file, std::string_view key) {
  file.remove_suffix(sizeof(kExtension) - 1);
  if (file.size() <= key.size() + 1 || !file.starts_with(key)) return "0";
  return std::string(file.substr(key.size() + 1));
}

// Numbered folders: (12, ".../step12") of prefix "step".
std::vector<std::pair<int64_t, std::string>> Numbered(const std::string& folder,
                                                      std::string_view prefix) {
  std::vector<std::pair<int64_t, std::string>> found;
  const Result<std::vector<std::string>> names = ListDirectory(folder);
  if (!names.ok()) return found;
  for (const std::string& name : *names) {
    const int64_t number = NumberAfter(name, prefix);
    if (number >= 0) found.emplace_back(number, JoinPath(folder, name));
  }
  return found;
}

void AddFiles(const std::string& folder, const std::string& key, const Place& place,
              Values* values) {
  const Result<std::vector<std::string>> names = ListDirectory(folder);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (!name.ends_with(kExtension)) continue;
    Place here = place;
    here.id = IdOf(name, key);
    (*values)[here] = JoinPath(folder, name);
  }
}

Values ValuesOf(const std::string& data, const std::string& key) {
  Values values;
  for (const auto& [step, step_folder] : Numbered(JoinPath(data, key), "step")) {
    for (const auto& [rank, rank_folder] : Numbered(step_folder, "rank")) {
      AddFiles(rank_folder, key, {step, rank, 0}, &values);
      for (const auto& [micro_step, folder] : Numbered(rank_folder, "micro_step"))
        AddFiles(folder, key, {step, rank, micro_step}, &values);
    }
  }
  return values;
}

double At(const TensorView& view, const uint8_t* p, int64_t index) {
  return ElementToComplex(view.dtype, p + index * static_cast<int64_t>(DTypeSize(view.dtype)))
      .real();
}

// Counts of the elements seen so far.
struct Tally {
  int64_t count = 0, same = 0, thousandth = 0, hundredth = 0;
  KeyDifference found;

  void Add(double a, double b) {
    const double larger = std::max(std::fabs(a), std::fabs(b));
    const double error = a == b ? 0 : std::fabs(a - b);
    const double relative = error == 0 ? 0 : error / larger;
    same += a == b;
    if (a != b && !found.first_mismatch) found.first_mismatch = count;
    thousandth += error <= 0.001 * larger;
    hundredth += error <= 0.01 * larger;
    Raise(&found.max_abs_error, error);
    Raise(&found.max_rel_error, relative);
    ++count;
  }
  static void Raise(double* largest, double value) {
    if (std::isnan(value) || value > *largest) *largest = value;  // nothing is larger than NaN
  }
  double Percent(int64_t part) const {
    return count == 0 ? 100.0 : 100.0 * static_cast<double>(part) / static_cast<double>(count);
  }
};

std::string ShapeText(const TensorView& view) {
  return fmt::format("[{}]", fmt::join(view.dims(), ", "));
}

Result<KeyDifference> CompareFiles(const std::string& first, const std::string& second,
                                   std::string* shapes) {
  MSPROBE_ASSIGN_OR_RETURN(const formats::TensorFile a, formats::ReadNpy(first));
  MSPROBE_ASSIGN_OR_RETURN(const formats::TensorFile b, formats::ReadNpy(second));
  shapes[0] = ShapeText(a.view());
  shapes[1] = ShapeText(b.view());
  return CompareKeyValues(a.view(), b.view());
}

void AddRow(const Place& place, const std::string* shapes, const KeyDifference& difference,
            formats::XlsxRows* rows) {
  rows->BeginRow();
  rows->NumberCell(static_cast<double>(place.step));
  rows->NumberCell(static_cast<double>(place.rank));
  rows->NumberCell(static_cast<double>(place.micro_step));
  rows->SpelledCell(place.id);
  rows->TextCell(shapes[0]);
  rows->TextCell(shapes[1]);
  rows->NumberCell(difference.same);
  if (difference.first_mismatch) {
    rows->NumberCell(static_cast<double>(*difference.first_mismatch));
  } else {
    rows->TextCell("");
  }
  rows->NumberCell(difference.max_abs_error);
  rows->NumberCell(difference.max_rel_error);
  rows->NumberCell(difference.within_thousandth);
  rows->NumberCell(difference.within_hundredth);
  rows->EndRow();
}

Status CompareKey(const std::string& key, const Values& first, const Values& second,
                  const std::string& output, KeyDataComparison* all) {
  formats::XlsxRows rows;
  uint32_t count = 0;
  for (const auto& [place, path] : first) {
    const auto other = second.find(place);
    if (other == second.end()) {
      ++all->only_one;
      continue;
    }
    std::string shapes[2];
    const Result<KeyDifference> difference = CompareFiles(path, other->second, shapes);
    if (!difference.ok()) {
      all->errors.push_back(difference.status().AsMessage());
      continue;
    }
    AddRow(place, shapes, *difference, &rows);
    ++count;
    ++all->values;
    all->unequal += difference->first_mismatch.has_value() || shapes[0] != shapes[1];
  }
  for (const auto& [place, path] : second) all->only_one += first.count(place) == 0;
  rows.Compress();
  MSPROBE_ASSIGN_OR_RETURN(formats::XlsxWriter book,
                           formats::XlsxWriter::Create(JoinPath(output, key + ".xlsx")));
  MSPROBE_RETURN_IF_ERROR(
      book.AddSheet({.name = "Sheet1",
                     .header = {std::begin(kKeyDataColumns), std::end(kKeyDataColumns)},
                     .rows = count}));
  MSPROBE_RETURN_IF_ERROR(book.Append({&rows, 1}));
  ++all->keys;
  return book.Close();
}

}  // namespace

KeyDifference CompareKeyValues(const TensorView& first, const TensorView& second) {
  // The part that both have, as views of the same shape.
  std::vector<int64_t> shape;
  std::vector<int64_t> strides[2] = {ContiguousStrides(first.dims()),
                                     ContiguousStrides(second.dims())};
  const TensorView* const whole[2] = {&first, &second};
  for (const size_t side : {0, 1}) {
    if (whole[side]->strides != nullptr)
      strides[side].assign(whole[side]->strides, whole[side]->strides + whole[side]->ndim);
  }
  const bool same_ndim = first.ndim == second.ndim;
  for (int d = 0; same_ndim && d < first.ndim; ++d)
    shape.push_back(std::min(first.shape[d], second.shape[d]));
  int64_t numel = same_ndim ? 1 : std::min(first.numel(), second.numel());
  for (const int64_t extent : shape) numel *= extent;

  TensorView parts[2] = {first, second};
  for (const size_t side : {0, 1}) {
    if (!same_ndim) continue;
    parts[side].shape = shape.data();
    parts[side].strides = strides[side].data();
  }
  constexpr int64_t kChunk = 4096;
  const kernels::ChunkReader readers[2] = {kernels::ChunkReader(parts[0]),
                                           kernels::ChunkReader(parts[1])};
  kernels::ChunkReader::Window windows[2];
  Tally tally;
  for (int64_t begin = 0; begin < numel; begin += kChunk) {
    const int64_t n = std::min(kChunk, numel - begin);
    const uint8_t* const a = readers[0].Read(begin, n, &windows[0]);
    const uint8_t* const b = readers[1].Read(begin, n, &windows[1]);
    for (int64_t i = 0; i < n; ++i) tally.Add(At(first, a, i), At(second, b, i));
  }
  tally.found.same = tally.Percent(tally.same);
  tally.found.within_thousandth = tally.Percent(tally.thousandth);
  tally.found.within_hundredth = tally.Percent(tally.hundredth);
  return tally.found;
}

Result<KeyDataComparison> CompareKeyData(const std::string& first, const std::string& second,
                                         const std::string& output) {
  std::set<std::string> keys;
  const std::string data[2] = {JoinPath(first, "data"), JoinPath(second, "data")};
  for (const std::string& folder : data) {
    if (!IsDirectory(folder))
      return NotFound(folder).Expected("the folder data/ that SingleSave wrote"_t);
    MSPROBE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(folder));
    for (const std::string& name : names) {
      if (IsDirectory(JoinPath(folder, name))) keys.insert(name);
    }
  }
  MSPROBE_RETURN_IF_ERROR(MakeDirectories(output));
  KeyDataComparison all;
  for (const std::string& key : keys) {
    MSPROBE_RETURN_IF_ERROR(
        CompareKey(key, ValuesOf(data[0], key), ValuesOf(data[1], key), output, &all));
  }
  return all;
}

}  // namespace msprobe::key_data
