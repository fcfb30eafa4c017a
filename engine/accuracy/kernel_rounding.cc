#include "engine/accuracy/kernel_rounding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/accuracy/rounding_steps.h"

namespace msprobe::accuracy {
namespace {

// Kernels that add into a tensor at indices do it in the tensor's dtype (on GPUs: atomic additions
// of halves). The others sum float32 over parts of the batch, or keep means and scales as halves.
constexpr std::string_view kRoundInside[] = {
    "_adaptive_avg_pool2d_backward",
    "_adaptive_avg_pool3d",
    "_adaptive_avg_pool3d_backward",
    "_embedding_bag",
    "_embedding_bag_backward",
    "_embedding_bag_per_sample_weights_backward",
    "_index_put_impl_",
    "_trilinear",
    "avg_pool2d_backward",
    "binary_cross_entropy_backward",
    "col2im",
    "convolution_backward",
    "convolution_transposed",
    "cumprod",
    "dist",
    "embedding_dense_backward",
    "fractional_max_pool2d_backward",
    "fractional_max_pool3d_backward",
    "glu_backward",
    "grid_sampler_2d",
    "grid_sampler_2d_backward",
    "grid_sampler_3d",
    "grid_sampler_3d_backward",
    "huber_loss",
    "huber_loss_backward",
    "index_add",
    "index_add_",
    "index_put",
    "index_put_",
    "logsumexp",
    "max_pool2d_with_indices_backward",
    "mse_loss",
    "mvlgamma",
    "native_batch_norm",
    "native_batch_norm_backward",
    "native_group_norm_backward",
    "native_layer_norm_backward",
    "nll_loss_forward",
    "polygamma",
    "prod",
    "renorm",
    "replication_pad1d_backward",
    "replication_pad2d_backward",
    "replication_pad3d_backward",
    "scatter_add",
    "scatter_add_",
    "scatter_reduce",
    "scatter_reduce_",
    "smooth_l1_loss",
    "upsample_bicubic2d",
    "upsample_bicubic2d_backward",
    "upsample_bilinear2d",
    "upsample_bilinear2d_backward",
    "upsample_linear1d",
    "upsample_linear1d_backward",
    "upsample_trilinear3d",
    "upsample_trilinear3d_backward",
};
// Kernels that add one term after the other, over the batch and all places: the sum that becomes
// the gradient of a bias is kept in no more lanes than any other, whatever the extents are.
constexpr std::string_view kAddInTurn = "convolution_backward";
// The gradients of weight and bias are added row by row, in the dtype of the result: a long sum of
// halves no longer takes up its terms. Measured on CPUs: one rounding for 22 rows of a thread.
constexpr std::string_view kAddsRows = "native_layer_norm_backward";
constexpr double kRowsOfOneRounding = 64;  // of a standard deviation
// Cubic weights of a place between pixels: its rounding, in units of an image's size, is many of a
// small weight. Measured on CPUs: 500 roundings of a result whose terms cancel, for 20 pixels.
constexpr std::string_view kPlaces = "upsample_bicubic2d";
constexpr double kRoundingsOfPlaces = 64;
// Of what rounds inside, by the beginnings of names: those that round several times for each term.
// A place between pixels has a weight for each dimension.
constexpr std::pair<std::string_view, double> kRoundMore[] = {
    {"grid_sampler_", 2}, {"polygamma", 4}, {"upsample_", 2}};
// What linear algebra does in turn, column by column, grows with the condition of what is left.
constexpr std::string_view kSolves = "linalg_";
constexpr double kRoundingsOfSolvers = 4;
// Of one kernel: roundings of its own formula, in the dtype in which it computes.
constexpr double kFormulaRoundings = 2;
// Sums are kept in this many lanes at least; their rounding grows with the root of a lane's terms.
constexpr double kLanes = 256;
// A part of what rounds inside: it is counted in standard deviations of one rounding.
constexpr double kInside = 0.25;

double Count(const std::vector<int64_t>& shape) {
  double count = 1;
  for (const int64_t extent : shape) count *= static_cast<double>(extent);
  return count;
}

// The products of a batch: the extent that the factors and the result have in front.
double Batch(const KernelCall& kernel, const std::vector<int64_t>& result) {
  if (result.size() < 3 || kernel.inputs.size() < 2) return 1;
  for (const std::vector<int64_t>& shape : kernel.inputs) {
    if (shape.size() != result.size() || shape[0] != result[0]) return 1;
  }
  return std::max<double>(1, static_cast<double>(result[0]));
}

// The elements of an input for each element of a result, or, of a product (M x K)(K x N),
// K = sqrt(MK KN / MN).
double Terms(const KernelCall& kernel, const std::vector<int64_t>& result) {
  const double outputs = Count(result), batch = Batch(kernel, result);
  double largest = 0, first = 0, second = 0;
  for (const std::vector<int64_t>& shape : kernel.inputs) {
    const double count = Count(shape);
    largest = std::max(largest, count);
    if (shape.size() < 2) continue;
    second = std::max(second, std::min(first, count));
    first = std::max(first, count);
  }
  return std::max({1.0, largest / outputs, std::sqrt(first * second / outputs / batch)});
}

double MostTerms(const KernelCall& kernel) {
  double terms = 1;
  for (const std::vector<int64_t>& shape : kernel.outputs) {
    if (Count(shape) > 0) terms = std::max(terms, Terms(kernel, shape));
  }
  return terms;
}

double LargestExtent(const KernelCall& kernel) {
  double extent = 1;
  for (const std::vector<int64_t>& shape : kernel.inputs) {
    for (const int64_t each : shape) extent = std::max(extent, static_cast<double>(each));
  }
  return extent;
}

// How many rows of an input are added up in one of an output.
double MostRows(const KernelCall& kernel) {
  double rows = 1;
  for (const std::vector<int64_t>& in : kernel.inputs) {
    for (const std::vector<int64_t>& out : kernel.outputs)
      if (Count(out) > 0) rows = std::max(rows, Count(in) / Count(out));
  }
  return rows;
}

}  // namespace

KernelRounding RoundingOf(const KernelCall& kernel, DType result, DType sums) {
  KernelRounding found;
  const std::string_view base = kernel.name.substr(
      kernel.name.find(':') == kernel.name.npos ? 0 : kernel.name.rfind(':') + 1);
  found.in_dtype =
      kernel.inside || std::binary_search(std::begin(kRoundInside), std::end(kRoundInside), base);
  const std::optional<FloatFormat> own = FormatOf(result), wide = FormatOf(sums);
  double unit = wide ? wide->roundoff() : 0;
  if (own && found.in_dtype) {
    double inside = kInside;
    for (const auto& [name, times] : kRoundMore)
      if (base.starts_with(name)) inside *= times;
    unit = std::max(unit, inside * own->roundoff());
  }
  const double terms = kernel.pointwise ? 1 : MostTerms(kernel);
  const double extent = kernel.pointwise ? 1 : LargestExtent(kernel);
  found.terms = std::llround(terms);
  found.input = unit * std::sqrt(terms);
  found.output = unit * (kernel.pointwise ? kFormulaRoundings : 1 + std::sqrt(extent / kLanes));
  if (base.starts_with(kPlaces) && wide)
    found.input = std::max(found.input, kRoundingsOfPlaces * wide->roundoff());
  if (base.starts_with(kSolves)) found.input *= kRoundingsOfSolvers;
  if (base == kAddInTurn && wide)
    found.output = std::max(found.output, wide->roundoff() * (1 + std::sqrt(terms / kLanes)));
  if (base == kAddsRows && own) {
    found.sum = std::max(found.output, own->roundoff() * MostRows(kernel) / kRowsOfOneRounding);
  }
  return found;
}

std::string KernelsText(std::span<const NamedKernel> kernels) {
  constexpr size_t kMost = 4;
  std::vector<NamedKernel> once;
  for (const NamedKernel& kernel : kernels) {
    const auto same = [&](const NamedKernel& other) { return other.name == kernel.name; };
    const auto at = std::find_if(once.begin(), once.end(), same);
    if (at == once.end()) {
      once.push_back(kernel);
    } else {
      at->terms = std::max(at->terms, kernel.terms);
    }
  }
  std::stable_sort(once.begin(), once.end(),
                   [](const NamedKernel& a, const NamedKernel& b) { return a.terms > b.terms; });
  std::string text;
  for (size_t i = 0; i < std::min(once.size(), kMost); ++i) {
    const std::string_view name = once[i].name;
    text += (i == 0 ? "" : ", ") + std::string(name.substr(name.rfind(':') + 1));
    if (once[i].terms > 1) text += fmt::format(" ({} terms)", once[i].terms);
  }
  return once.size() > kMost ? text + ", ..." : text;
}

}  // namespace msprobe::accuracy
