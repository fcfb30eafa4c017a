// Elements of a tensor in the forms that the older tools kept them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/tensor/tensor_view.h"

namespace msprobe::dump {

// Elements of our own, contiguous.
struct OwnedElements {
  DType dtype = DType::kFloat64;
  std::vector<int64_t> shape;
  std::vector<char> bytes;

  TensorView view() const {
    return {.data = bytes.data(),
            .dtype = dtype,
            .ndim = static_cast<int>(shape.size()),
            .shape = shape.data()};
  }
};

inline constexpr int64_t kSampleEnd = 256;  // elements at each end that are always kept
// ptdbg_ascend 0.1: flat, in float64 what a float32 holds of them. Of more than 512, the first 256,
// each `step`-th behind them, and the last 256.
OwnedElements SampleElements(const TensorView& view, int64_t step);

// The same elements in a dtype that NumPy has: small floats in float32, complex32 in complex64,
// packed ones as the bytes they are. A view of what has one already; else of `*owned`.
TensorView NumpyElements(const TensorView& view, OwnedElements* owned);

// The memory that a view lies in, from its first element to its last. `*offset`: where element
// (0, ..., 0) is in it; not 0 only with negative strides.
OwnedElements StorageElements(const TensorView& view, int64_t* offset);

// Appends "1.5, -2.0": the first elements, at most `most`.
void ListElements(const TensorView& view, int64_t most, std::string* list);

}  // namespace msprobe::dump
