// The place of the first NaN or infinity.
#pragma once

#include <cstdint>

#include "engine/tensor/tensor_view.h"

namespace msprobe::kernels {

// Index of the first element, in logical order, that is NaN or infinite (complex: either part); -1
// when all are finite. Stops at that element, so it is cheap for tensors that are known to have
// one.
//
//   const int64_t where = FirstNonfinite(view);
int64_t FirstNonfinite(const TensorView& view);

}  // namespace msprobe::kernels
