#include "engine/tensor/tensor_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace msprobe {
namespace {

// Asked before extents are multiplied: beside a zero the others may be of any size.
bool IsEmpty(std::span<const int64_t> shape) {
  return std::find(shape.begin(), shape.end(), 0) != shape.end();
}

}  // namespace

int64_t TensorView::numel() const {
  // Unsigned: beside a zero the others may be of any size, and the product is 0 all the same.
  uint64_t n = 1;
  for (const int64_t extent : dims()) n *= static_cast<uint64_t>(extent);
  return static_cast<int64_t>(n);
}

bool TensorView::IsContiguous() const {
  if (strides == nullptr) return true;
  bool in_order = true;
  uint64_t expected = 1;  // unsigned, as above
  for (int d = ndim - 1; d >= 0; --d) {
    if (shape[d] == 0) return true;
    in_order = in_order && (shape[d] == 1 || static_cast<uint64_t>(strides[d]) == expected);
    expected *= static_cast<uint64_t>(shape[d]);
  }
  return in_order;
}

StridedRuns MakeRuns(const TensorView& view) {
  StridedRuns runs;
  const int64_t numel = view.numel();
  if (numel == 0) return runs;
  if (view.IsContiguous()) {
    runs.run = numel;
    runs.count = 1;
    return runs;
  }
  // Merge from the innermost dimension outwards: (extent, stride) joins the previous loop when
  // stepping it once equals running through that whole loop.
  std::vector<int64_t> extent, stride;  // innermost first
  for (int d = view.ndim - 1; d >= 0; --d) {
    if (view.shape[d] == 1) continue;
    if (!extent.empty() && view.strides[d] == extent.back() * stride.back()) {
      extent.back() *= view.shape[d];
    } else {
      extent.push_back(view.shape[d]);
      stride.push_back(view.strides[d]);
    }
  }
  runs.run = extent[0];
  runs.run_stride = stride[0];
  runs.extent.assign(extent.rbegin(), extent.rend() - 1);
  runs.stride.assign(stride.rbegin(), stride.rend() - 1);
  runs.count = numel / runs.run;
  return runs;
}

Result<int64_t> CheckedByteSize(DType dtype, std::span<const int64_t> shape) {
  int64_t bytes = static_cast<int64_t>(DTypeSize(dtype));
  for (const int64_t extent : shape) {
    if (extent < 0)
      return InvalidDump("").Expected("a shape without negative extents"_t).Found(ShapeText(shape));
  }
  if (IsEmpty(shape)) return int64_t{0};
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      return InvalidDump("")
          .Expected("a tensor of less than 2^63 bytes"_t)
          .Found("shape {}"_t(ShapeText(shape)));
    }
  }
  return bytes;
}

std::vector<int64_t> ContiguousStrides(std::span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    if (shape[d] > 1 && __builtin_mul_overflow(stride, shape[d], &stride)) stride = 1;
  }
  return strides;
}

void CopyContiguous(const TensorView& view, void* out) {
  const size_t size = DTypeSize(view.dtype);
  const char* source = static_cast<const char*>(view.data);
  char* target = static_cast<char*>(out);
  const StridedRuns runs = MakeRuns(view);
  runs.ForEach(0, runs.count, [&](int64_t offset) {
    const char* p = source + offset * static_cast<int64_t>(size);
    if (runs.run_stride == 1) {
      std::memcpy(target, p, static_cast<size_t>(runs.run) * size);
      target += static_cast<size_t>(runs.run) * size;
      return;
    }
    const int64_t step = runs.run_stride * static_cast<int64_t>(size);
    for (int64_t i = 0; i < runs.run; ++i, p += step, target += size) std::memcpy(target, p, size);
  });
}

std::string ShapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t d = 0; d < shape.size(); ++d) text += fmt::format("{}{}", d ? ", " : "", shape[d]);
  return text + "]";
}

}  // namespace msprobe
