// The value of every byte of the 8-bit dtypes, made once from engine/tensor/float_formats.h.
#pragma once

#include <array>

#include "engine/tensor/dtype.h"

namespace msprobe::kernels {

// 256 values, for a dtype of one byte other than kFloat4E2M1X2.
const float* ByteTable(DType dtype);
// The 16 values of a kFloat4E2M1X2 half.
const float* NibbleTable();

}  // namespace msprobe::kernels
