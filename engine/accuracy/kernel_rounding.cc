#include "engine/accuracy/kernel_rounding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/accuracy/rounding_steps.h"

namespace msprobe::accuracy {
namespace {

// Kernels that add into a tensor at indices do it in the tensor's dtype (on GPUs: atomic additions of
// halves). The others sum float32 over parts of the batch, or keep means and scales as halves.
constexpr std::string_view kRoundInside[] = {
    "_adaptive_avg_pool2d_backward",
    "_index_put_impl_",
    "avg_pool2d_backward",
    "convolution_backward",
    "embedding_dense_backward",
    "glu_backward",
    "huber_loss",
    "index_add",
    "index_add_",
    "index_put",
    "index_put_",
    "logsumexp",
    "native_batch_norm",
    "native_batch_norm_backward",
    "native_group_norm_backward",
    "native_layer_norm_backward",
    "nll_loss_forward",
    "prod",
    "scatter_add",
    "scatter_add_",
};
// Kernels that add one term after the other, over the batch and all places: the sum that becomes the
// gradient of a bias is kept in no more lanes than any other, whatever the extents are.
constexpr std::string_view kAddInTurn = "convolution_backward";
// The gradients of weight and bias are added row by row, in the dtype of the result: a long sum of halves
// no longer takes up its terms. Measured on CPUs: one rounding for 22 rows of a thread.
constexpr std::string_view kAddsRows = "native_layer_norm_backward";
constexpr double kRowsOfOneRounding = 64;  // of a standard deviation
// Of one kernel: roundings of its own formula, in the dtype in which it computes.
constexpr double kLibraryRoundings = 2;
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

}  // namespace

KernelRounding RoundingOf(const KernelCall& kernel, DType result, DType sums) {
  KernelRounding found;
  const std::string_view base = kernel.name.substr(
      kernel.name.find(':') == kernel.name.npos ? 0 : kernel.name.rfind(':') + 1);
  found.in_dtype =
      kernel.inside || std::binary_search(std::begin(kRoundInside), std::end(kRoundInside), base);
  const std::optional<FloatFormat> own = FormatOf(result), wide = FormatOf(sums);
  double unit = wide ? wide->rounding() : 0;
  if (own && found.in_dtype) unit = std::max(unit, kInside * own->rounding());
  double terms = 1, extent = 1;
  if (!kernel.pointwise) {
    for (const std::vector<int64_t>& shape : kernel.outputs) {
      if (Count(shape) > 0) terms = std::max(terms, Terms(kernel, shape));
    }
    for (const std::vector<int64_t>& shape : kernel.inputs) {
      for (const int64_t each : shape) extent = std::max(extent, static_cast<double>(each));
    }
  }
  found.terms = std::llround(terms);
  found.input = unit * std::sqrt(terms);
  found.output = unit * (kernel.pointwise ? kLibraryRoundings : 1 + std::sqrt(extent / kLanes));
  if (base == kAddInTurn && wide)
    found.output = std::max(found.output, wide->rounding() * (1 + std::sqrt(terms / kLanes)));
  if (base == kAddsRows && own) {
    double rows = 1;
    for (const std::vector<int64_t>& in : kernel.inputs) {
      for (const std::vector<int64_t>& out : kernel.outputs)
        if (Count(out) > 0) rows = std::max(rows, Count(in) / Count(out));
    }
    found.sum = std::max(found.output, own->rounding() * rows / kRowsOfOneRounding);
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
