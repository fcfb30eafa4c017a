// A tensor as the engine sees it: an address, a dtype, a shape and strides. Owns nothing.
//
//   int64_t shape[] = {2, 3}, strides[] = {3, 1};
//   TensorView v{
//       .data = p, .dtype = DType::kFloat32, .ndim = 2, .shape = shape, .strides = strides};
//   Stats s = ComputeStats(v);                                  // engine/kernels/stats.h
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/tensor/dtype.h"

namespace msprobe {

// Host memory. `shape` and `strides` have `ndim` entries, strides count elements (not bytes) and
// may be zero (expanded), negative or overlapping. A null `strides` means contiguous, row-major.
// `data` points at element (0, ..., 0).
struct TensorView {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  int ndim = 0;
  const int64_t* shape = nullptr;
  const int64_t* strides = nullptr;

  std::span<const int64_t> dims() const { return {shape, static_cast<size_t>(ndim)}; }
  int64_t numel() const;      // 1 for ndim 0
  bool IsContiguous() const;  // row-major, dimensions of extent 1 ignored; true when empty
};

// The loops that visit a view in logical (row-major) order. Neighbouring dimensions are merged and
// dimensions of extent 1 dropped, so that the innermost run is as long as possible. A contiguous
// tensor is one run of numel() elements with stride 1.
struct StridedRuns {
  int64_t run = 0;              // elements in the innermost loop (0 when the tensor is empty)
  int64_t run_stride = 1;       // elements between neighbours in it
  std::vector<int64_t> extent;  // the outer loops, outermost first
  std::vector<int64_t> stride;
  int64_t count = 0;  // number of runs

  // Calls visit(element offset of the run's first element) for runs [first, last), in logical
  // order.
  template <typename Visit>
  void ForEach(int64_t first, int64_t last, Visit&& visit) const;
};
StridedRuns MakeRuns(const TensorView& view);

// Product of extents times the element size, or an error when an extent is negative or the product
// overflows int64.
Result<int64_t> CheckedByteSize(DType dtype, std::span<const int64_t> shape);

// Row-major strides, in elements. Never overflows: an empty tensor may have extents whose product
// is over 2^63, but its strides are never used.
std::vector<int64_t> ContiguousStrides(std::span<const int64_t> shape);

// Copies a view's elements, in logical order, to `out` (numel x element size bytes).
void CopyContiguous(const TensorView& view, void* out);

// "[2, 3]" and "[]", as Python prints a list.
std::string ShapeText(std::span<const int64_t> shape);

template <typename Visit>
void StridedRuns::ForEach(int64_t first, int64_t last, Visit&& visit) const {
  if (first >= last) return;
  const int n = static_cast<int>(extent.size());
  std::array<int64_t, 64> index{};
  int64_t offset = 0, rest = first;
  for (int d = n - 1; d >= 0; --d) {
    index[d] = rest % extent[d];
    rest /= extent[d];
    offset += index[d] * stride[d];
  }
  for (int64_t i = first; i < last; ++i) {
    visit(offset);
    for (int d = n - 1; d >= 0; --d) {
      offset += stride[d];
      if (++index[d] < extent[d]) break;
      offset -= extent[d] * stride[d];
      index[d] = 0;
    }
  }
}

}  // namespace msprobe
