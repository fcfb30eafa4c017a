#include "cli/outputs/show_tensor.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "cli/outputs/tensor_elements.h"
#include "engine/base/display_width.h"
#include "engine/base/file.h"
#include "engine/base/threads.h"
#include "engine/formats/tensors/npy.h"
#include "engine/formats/tensors/pt.h"
#include "engine/formats/tensors/safetensors.h"
#include "engine/formats/tensors/tensor_file.h"
#include "engine/kernels/diff.h"
#include "engine/kernels/stats.h"
#include "engine/tensor/float_formats.h"
#include "engine/tensor/tensor_slice.h"

namespace msprobe::cli {
namespace {

constexpr int64_t kElements = 1000, kFirstElements = 8, kWorst = 10;

struct Named {
  std::string name;
  formats::TensorFile tensor;
};

Result<std::vector<Named>> ReadAll(const std::string& path, const std::string& filter) {
  std::vector<Named> all;
  if (formats::IsInPack(path)) {
    MSPROBE_ASSIGN_OR_RETURN(formats::TensorFile tensor, formats::ReadTensorFile(path));
    all.push_back({"", std::move(tensor)});
    return all;
  }
  MSPROBE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  const auto add = [&](const std::string& name, const formats::TensorFile& tensor) {
    if (name.find(filter) != std::string::npos) all.push_back({name, tensor});
  };
  if (file.bytes().starts_with("\x93NUMPY") || path.ends_with(".npy")) {
    MSPROBE_ASSIGN_OR_RETURN(formats::TensorFile tensor, formats::ReadTensorFile(path));
    all.push_back({"", std::move(tensor)});
    return all;
  }
  if (formats::LooksLikeSafetensors(file.bytes()) || path.ends_with(".safetensors")) {
    MSPROBE_ASSIGN_OR_RETURN(const formats::SafetensorsFile safe,
                             formats::SafetensorsFile::Open(path));
    for (const formats::SafetensorsEntry& entry : safe.entries()) {
      if (entry.name.find(filter) == std::string::npos) continue;
      MSPROBE_ASSIGN_OR_RETURN(formats::TensorFile tensor, safe.Read(entry));
      add(entry.name, tensor);
    }
    return all;
  }
  MSPROBE_ASSIGN_OR_RETURN(const formats::PtFile pt, formats::ReadPt(path));
  for (const formats::PtTensor& tensor : pt.tensors) add(tensor.name, tensor.tensor);
  return all;
}

// Prints the positions of the extremes and of the first NaN or infinity.
void PrintExtremes(const TensorView& view, Console& out) {
  int64_t high = -1, low = -1, bad = -1;
  double highest = 0, lowest = 0;
  ForEachElement(view, [&](int64_t flat, const void* p) {
    const double x = ElementToDouble(view.dtype, p);
    if (!std::isfinite(x) && bad < 0) bad = flat;
    if (std::isnan(x)) return;
    if (high < 0 || x > highest) high = flat, highest = x;
    if (low < 0 || x < lowest) low = flat, lowest = x;
  });
  if (high >= 0) {
    out.Tell("  {}"_t("largest  {} at {}"_t(highest, Place(view, high))));
    out.Tell("  {}"_t("smallest {} at {}"_t(lowest, Place(view, low))));
  }
  if (bad >= 0) out.Tell("  {}"_t("first NaN or infinity at {}"_t(Place(view, bad))));
}

void PrintStatistics(const TensorView& view, Console& out) {
  const kernels::Stats s = kernels::ComputeStats(view, &ThreadPool::Default());
  out.Tell("  {}"_t("max {}  min {}  mean {}  norm {}"_t(s.max, s.min, s.mean, s.norm)));
  std::vector<Message> counts = {"{} elements"_t(s.count)};
  for (const auto& [label, n] :
       {std::pair("NaN", s.nan), {"+inf", s.pos_inf}, {"-inf", s.neg_inf}, {"zero", s.zero}}) {
    if (n > 0) counts.push_back(fmt::format("{} {}", n, label));
  }
  const Message elements = Message::Joined(std::move(counts), ", ");
  out.Tell("  {}"_t(Message::Joined({elements, "fingerprint {:016x}"_t(s.fingerprint)}, "; ")));
}

std::string Element(const TensorView& view, const void* p) {
  std::string text;
  AppendElement(&text, view.dtype, p);
  return text;
}

// Prints the elements with the largest errors against the golden.
Status PrintWorst(const TensorView& target, const formats::TensorFile& file, int64_t most,
                  Console& out) {
  const TensorView golden = file.view();
  if (ShapeText(target.dims()) != ShapeText(golden.dims())) {
    return InvalidArgument("the shapes differ: {} against {} of the golden"_t(
        ShapeText(target.dims()), ShapeText(golden.dims())));
  }
  if (!HasRealElements(target.dtype) || !HasRealElements(golden.dtype)) {
    return Unsupported(
        "--golden accepts only real tensors; msprobe compare accepts complex tensors, too"_t);
  }
  MSPROBE_ASSIGN_OR_RETURN(const kernels::Diff d,
                           kernels::ComputeDiff(target, golden, &ThreadPool::Default()));
  out.Tell(
      "  {}"_t("against the golden: {} of {} elements differ, cosine {}, relative L2 {}, largest "
               "error {}"_t(d.unequal, d.count, d.cosine, d.relative_l2, d.max_abs_error)));
  for (const ElementPair& w : WorstElements(target, golden, most)) {
    out.Tell("  {}  {}"_t(Place(target, w.flat),
                          "{}, golden {}, off by {}"_t(w.target, w.golden, w.error)));
  }
  return Status::Ok();
}

Status ShowOne(const std::string& path, const Named& named, const ShowTensorOptions& options,
               Console& out) {
  const TensorView view = named.tensor.view();
  out.Print("{}{}  {} {}\n", MakePrintable(path),
            named.name.empty() ? "" : fmt::format(": {}", MakePrintable(named.name)),
            DTypeTorchName(view.dtype), ShapeText(view.dims()));
  std::string text;
  if (!options.slice.empty()) {
    MSPROBE_ASSIGN_OR_RETURN(const TensorSlice slice, TensorSlice::Parse(options.slice));
    MSPROBE_ASSIGN_OR_RETURN(const SlicedView part, slice.Apply(view));
    out.Print("[{}]  {}\n", options.slice, ShapeText(part.view().dims()));
    AppendElements(&text, part.view(), options.LimitOr(kElements));
    out.Print("{}\n", text);
    return Status::Ok();
  }
  PrintStatistics(view, out);
  if (HasRealElements(view.dtype)) PrintExtremes(view, out);
  if (!options.golden.empty()) {
    MSPROBE_ASSIGN_OR_RETURN(const std::vector<Named> golden,
                             ReadAll(options.golden, options.filter));
    const auto found = golden.size() == 1
                           ? golden.begin()
                           : std::find_if(golden.begin(), golden.end(),
                                          [&](const Named& g) { return g.name == named.name; });
    if (found == golden.end()) {
      return InvalidArgument("{} has no tensor {}"_t(options.golden, Excerpt(named.name)))
          .Hint("--filter NAME chooses one"_t);
    }
    return PrintWorst(view, found->tensor, options.LimitOr(kWorst), out);
  }
  const TensorView flat{.data = view.data, .dtype = view.dtype};
  if (view.numel() > 0 && view.ndim > 0) {
    int64_t shown = 0;
    ForEachElement(view, [&](int64_t, const void* p) {
      if (shown++ < kFirstElements) text += (shown > 1 ? ", " : "") + Element(flat, p);
    });
    if (view.numel() > kFirstElements) text += ", ...";
    out.Tell("  {}"_t("first    {}"_t(text)));
  }
  return Status::Ok();
}

}  // namespace

Status ShowTensors(const std::string& path, const ShowTensorOptions& options, Console& out) {
  MSPROBE_ASSIGN_OR_RETURN(const std::vector<Named> all, ReadAll(path, options.filter));
  if (all.empty()) {
    return InvalidArgument(options.filter.empty() ? "{} holds no tensor"_t(path)
                                                  : "no tensor of {} has a name with {}"_t(
                                                        path, Excerpt(options.filter)));
  }
  if (all.size() == 1) return ShowOne(path, all[0], options, out);
  if (!options.slice.empty() || !options.golden.empty()) {
    return InvalidArgument("{} holds {} tensors"_t(path, all.size()))
        .Hint("--filter NAME chooses one"_t);
  }
  out.Tell("{}  {} tensors"_t(path, all.size()));
  int width = 8;
  for (const Named& named : all)
    width = std::max(width, std::min(DisplayWidth(MakePrintable(named.name)), 60));
  int64_t shown = 0;
  for (const Named& named : all) {
    if (options.limit > 0 && shown++ == options.limit) {
      out.Tell("and {} more"_t(static_cast<int64_t>(all.size()) - options.limit));
      break;
    }
    const TensorView view = named.tensor.view();
    const kernels::Stats s = kernels::ComputeStats(view, &ThreadPool::Default());
    out.Print("  {:<{}}  {:<14} {:<16}  max {}  min {}  mean {}  norm {}{}\n",
              MakePrintable(named.name), width, DTypeTorchName(view.dtype), ShapeText(view.dims()),
              s.max, s.min, s.mean, s.norm, s.nan > 0 ? fmt::format("  nan {}", s.nan) : "");
  }
  return Status::Ok();
}

}  // namespace msprobe::cli
