#include "cli/outputs/tensor_elements.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/tensor/float_formats.h"
#include "engine/tensor/tensor_slice.h"

namespace msprobe::cli {
namespace {

bool IsWorse(const ElementPair& a, const ElementPair& b) {
  return a.error != b.error ? a.error > b.error : a.flat < b.flat;
}

}  // namespace

std::string Place(const TensorView& view, int64_t flat) {
  std::vector<int64_t> index(static_cast<size_t>(view.ndim));
  for (int d = view.ndim - 1; d >= 0; --d) {
    index[static_cast<size_t>(d)] = flat % view.shape[d];
    flat /= view.shape[d];
  }
  return ShapeText(index);
}

bool HasRealElements(DType dtype) {
  return DTypeKindOf(dtype) != DTypeKind::kComplex && dtype != DType::kFloat4E2M1X2;
}

std::vector<ElementPair> WorstElements(const TensorView& target, const TensorView& golden,
                                       int64_t most) {
  std::vector<ElementPair> worst;  // a heap with the smallest error on top
  std::vector<char> other(static_cast<size_t>(golden.numel()) * DTypeSize(golden.dtype));
  CopyContiguous(golden, other.data());
  const auto text = [](DType dtype, const void* p) {
    std::string out;
    AppendElement(&out, dtype, p);
    return out;
  };
  ForEachElement(target, [&](int64_t flat, const void* p) {
    const char* q = other.data() + static_cast<size_t>(flat) * DTypeSize(golden.dtype);
    const double t = ElementToDouble(target.dtype, p), g = ElementToDouble(golden.dtype, q);
    if (t == g || (std::isnan(t) && std::isnan(g))) return;
    double error = std::abs(t - g);
    if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
    if (static_cast<int64_t>(worst.size()) == most) {
      if (worst.empty() || error <= worst.front().error) return;
      std::pop_heap(worst.begin(), worst.end(), IsWorse);
      worst.pop_back();
    }
    worst.push_back({error, flat, text(target.dtype, p), text(golden.dtype, q)});
    std::push_heap(worst.begin(), worst.end(), IsWorse);
  });
  std::sort(worst.begin(), worst.end(), IsWorse);
  return worst;
}

}  // namespace msprobe::cli
