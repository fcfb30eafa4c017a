// Elements of a tensor in the forms in which the older tools stored them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/tensor/tensor_view.h"

namespace msprobe::dump {

// A contiguous copy of elements.
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
// The elements as ptdbg_ascend 0.1 stores them: flat, rounded to float32 and written as float64. Of
// more than 512 elements: the first 256, each `step`-th of those between, and the last 256.
OwnedElements SampleElements(const TensorView& view, int64_t step);

// The same elements in a dtype that NumPy has: small floats in float32, complex32 in complex64,
// packed dtypes as their bytes. The result points to the tensor itself if NumPy has its dtype, else
// to `*owned`.
TensorView NumpyElements(const TensorView& view, OwnedElements* owned);

// The memory that a view lies in, from its first element to its last. `*offset`: the index of
// element (0, ..., 0) in it; other than 0 only with negative strides.
OwnedElements StorageElements(const TensorView& view, int64_t* offset);

// Appends "1.5, -2.0": the first elements, at most `most`.
void ListElements(const TensorView& view, int64_t most, std::string* list);

}  // namespace msprobe::dump
