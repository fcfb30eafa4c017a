#include "cli/parse/parse_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cli/outputs/tensor_elements.h"
#include "engine/base/atomic_file.h"
#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/base/threads.h"
#include "engine/formats/tensors/tensor_file.h"
#include "engine/kernels/diff.h"
#include "engine/kernels/stats.h"
#include "engine/operator_dumps/operator_files.h"
#include "engine/tensor/float_formats.h"
#include "engine/tensor/tensor_slice.h"

namespace msprobe::cli {
namespace {

std::string Number(double value) {
  std::string text;
  AppendPythonFloat(&text, value);
  return text;
}

// "float32" of "torch.float32".
std::string_view DTypeWord(DType dtype) {
  const std::string_view name = DTypeTorchName(dtype);
  return name.substr(name.find('.') + 1);
}

std::string Shape(const TensorView& view) {
  std::string text = ShapeText(view.dims());  // "[2, 3]"
  text.front() = '(', text.back() = view.ndim == 1 ? ',' : ')';
  return view.ndim == 1 ? text + ")" : text;
}

Result<formats::TensorFile> ReadReal(const std::string& path) {
  MSPROBE_ASSIGN_OR_RETURN(formats::TensorFile file, formats::ReadTensorFile(path));
  if (!HasRealElements(file.dtype)) {
    return Unsupported("{} holds {}"_t(path, DTypeTorchName(file.dtype)))
        .Hint("msprobe compare accepts complex tensors"_t);
  }
  return file;
}

// The first `count` elements as a vector.
formats::TensorFile Flat(const formats::TensorFile& file, int64_t count) {
  const TensorView view = file.view();
  auto bytes = std::make_shared<std::vector<char>>(static_cast<size_t>(view.numel()) *
                                                   DTypeSize(view.dtype));
  CopyContiguous(view, bytes->data());
  formats::TensorFile flat{
      .dtype = file.dtype, .shape = {count}, .strides = {1}, .data = bytes->data()};
  flat.owner = std::move(bytes);
  return flat;
}

Status SaveText(const std::string& path, const formats::TensorFile& file) {
  std::string text;
  ForEachElement(file.view(), [&](int64_t, const void* p) {
    AppendElement(&text, file.dtype, p);
    text += '\n';
  });
  return WriteFileAtomically(path, text);
}

// The first elements, in rows of eight.
std::string FirstElements(const TensorView& view) {
  constexpr int64_t kRow = 8, kMost = 16 * kRow;
  std::string text, element;
  const auto size = static_cast<int64_t>(DTypeSize(view.dtype));
  const int64_t count = std::min(view.numel(), kMost);
  const StridedRuns runs = MakeRuns(view);
  int64_t done = 0;
  runs.ForEach(0, runs.run == 0 ? 0 : std::min(runs.count, kMost), [&](int64_t offset) {
    const char* p = static_cast<const char*>(view.data) + offset * size;
    for (int64_t i = 0; i < runs.run && done < count; ++i, ++done) {
      element.clear();
      AppendElement(&element, view.dtype, p + i * runs.run_stride * size);
      text += fmt::format("{:>16}{}", element, done % kRow == kRow - 1 ? "\n" : "");
    }
  });
  if (!text.empty() && text.back() != '\n') text += '\n';
  if (view.numel() > kMost) text += "... of {} elements"_t(view.numel()).Shown() + "\n";
  return text;
}

std::string Table(std::string_view title, const std::vector<ElementPair>& rows,
                  const TensorView& place) {
  std::string text =
      fmt::format("{}\n  {:<16} {:>24} {:>24} {:>24}\n", title, "Index", "Left", "Right", "Diff");
  for (const ElementPair& row : rows) {
    text += fmt::format("  {:<16} {:>24} {:>24} {:>24}\n", Place(place, row.flat), row.target,
                        row.golden, Number(row.error));
  }
  return text;
}

struct Wrong {
  int64_t count = 0;
  std::vector<ElementPair> first;
};

Wrong FindWrong(const TensorView& target, const TensorView& golden,
                const TensorFileComparison& options) {
  Wrong wrong;
  const auto* q = static_cast<const char*>(golden.data);
  ForEachElement(target, [&](int64_t flat, const void* p) {
    const void* other = q + static_cast<size_t>(flat) * DTypeSize(golden.dtype);
    const double a = ElementToDouble(target.dtype, p), b = ElementToDouble(golden.dtype, other);
    const double error = std::abs(a - b);
    // NaN is wrong against anything; two equal infinities are not wrong.
    if (a == b || error <= options.absolute + options.relative * std::abs(b)) return;
    if (wrong.count++ >= options.lines) return;
    ElementPair& pair = wrong.first.emplace_back(ElementPair{.error = error, .flat = flat});
    AppendElement(&pair.target, target.dtype, p);
    AppendElement(&pair.golden, golden.dtype, other);
  });
  return wrong;
}

}  // namespace

Result<std::string> DescribeTensorFile(const std::string& path, bool save) {
  MSPROBE_ASSIGN_OR_RETURN(const auto values, operator_dumps::ReadOperatorFile(path));
  std::string text;
  for (const operator_dumps::OperatorValue& value : values) {
    const std::string name = value.suffix.empty() ? path : path + "." + value.suffix;
    if (!value.tensor.problem.empty()) {
      text += "{}: not shown: {}"_t(name, Message(value.tensor.problem)).Shown() + "\n";
      continue;
    }
    const TensorView view = value.tensor.elements.view();
    const kernels::Stats s = kernels::ComputeStats(view, &ThreadPool::Default());
    text += FirstElements(view);
    if (value.tensor.layout) text += fmt::format("[Layout: {}] ", value.tensor.layout_name);
    text += fmt::format("[Shape: {}] [Dtype: {}] [Max: {}] [Min: {}] [Mean: {}]\n[Path: {}]\n",
                        Shape(view), DTypeWord(view.dtype), Number(s.max), Number(s.min),
                        Number(s.mean), name);
    if (!save) continue;
    MSPROBE_RETURN_IF_ERROR(SaveText(name + ".txt", value.tensor.elements));
    text += "written: {}"_t(name + ".txt").Shown() + "\n";
  }
  return text;
}

Result<std::string> CompareTensorFiles(const std::string& target, const std::string& golden,
                                       const TensorFileComparison& options, bool* close) {
  if (!(options.absolute >= 0) || !(options.relative >= 0) || options.lines < 0)
    return InvalidArgument("-p, -al and -rl are numbers of 0 or more"_t);
  MSPROBE_ASSIGN_OR_RETURN(const formats::TensorFile a, ReadReal(target));
  MSPROBE_ASSIGN_OR_RETURN(const formats::TensorFile b, ReadReal(golden));
  const int64_t count = std::min(a.view().numel(), b.view().numel());
  if (count == 0)
    return InvalidArgument("one of the tensors is empty: there is nothing to compare"_t);
  std::string text;
  for (const auto& [path, file] : {std::pair(&target, &a), std::pair(&golden, &b)}) {
    text += fmt::format("{}\n  [Shape: {}] [Dtype: {}]\n", *path, Shape(file->view()),
                        DTypeWord(file->dtype));
  }
  const bool same_shape = a.shape == b.shape;
  if (!same_shape) {
    text +=
        "The shapes differ: the first {} elements are compared in their order."_t(count).Shown() +
        "\n";
  }
  const formats::TensorFile left = Flat(a, count), right = Flat(b, count);
  const Wrong wrong = FindWrong(left.view(), right.view(), options);
  MSPROBE_ASSIGN_OR_RETURN(const kernels::Diff diff,
                           kernels::ComputeDiff(left.view(), right.view(), &ThreadPool::Default()));
  const TensorView place = same_shape ? a.view() : left.view();
  text += Table("Error Item Table", wrong.first, place);
  text += Table("Top Item Table", WorstElements(left.view(), right.view(), options.lines), place);
  const double share = 100.0 * static_cast<double>(wrong.count) / static_cast<double>(count);
  text += fmt::format("NumCnt:{} AllClose:{} CosSim:{} ErrorPer:{:.2f}% (rl= {}, al= {})\n", count,
                      wrong.count == 0 ? "True" : "False", Number(diff.cosine), share,
                      Number(options.relative), Number(options.absolute));
  *close = wrong.count == 0 && same_shape;
  if (!options.save) return text;
  for (const auto& [path, file] : {std::pair(&target, &a), std::pair(&golden, &b)}) {
    MSPROBE_RETURN_IF_ERROR(SaveText(*path + ".txt", *file));
    text += "written: {}"_t(*path + ".txt").Shown() + "\n";
  }
  return text;
}

}  // namespace msprobe::cli
