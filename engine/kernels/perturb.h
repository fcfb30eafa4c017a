// Changes the elements of a tensor a little, in place: what an operation is given a second time to
// see how much its results change. Elements of float64, float32, float16 and bfloat16; a tensor of
// another dtype stays as it is. Any strides without overlap.
#pragma once

#include <cstdint>

#include "engine/tensor/tensor_view.h"

namespace msprobe::kernels {

// Adds `noise` (> 0) to each finite element whose magnitude is above sqrt(noise), and at least one
// unit in the last place: an element that is changed is never the same number afterwards. An
// element that would become infinite stays. Returns the number of changed elements. `view.data` is
// written.
//
//   const int64_t changed = AddNoise(view, 1e-8);
int64_t AddNoise(const TensorView& view, double noise);

// Flips the last bit of the mantissa of each finite element whose magnitude is above the smallest
// normal number of the dtype. Returns the number of changed elements. `view.data` is written.
int64_t FlipLastBit(const TensorView& view);

// Swaps the first element with the last one; of a tensor of two or more dimensions, what is at
// [0][0] with what is at [-1][-1]. False, and nothing is changed: the tensor is empty, or has fewer
// than two elements in its first dimension. Any dtype. `view.data` is written.
bool SwapEnds(const TensorView& view);

}  // namespace msprobe::kernels
