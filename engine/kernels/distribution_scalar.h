// CountIntervals in the simplest way: the definition that the vector kernel is tested against.
#pragma once

#include <cstdint>
#include <span>

#include "engine/tensor/float_formats.h"

namespace msprobe::kernels {

// Adds the `n` elements at `p` to the counts.
inline void ChunkIntervalsScalar(DType dtype, const uint8_t* p, int64_t n,
                                 std::span<const double> bounds, int64_t* counts,
                                 uint8_t* positive) {
  for (int64_t i = 0; i < n; ++i) {
    const double value = ElementToDouble(dtype, p + i * static_cast<int64_t>(DTypeSize(dtype)));
    if (positive != nullptr) positive[i] = value > 0 ? 1 : 0;
    if (value != value) continue;
    size_t interval = 0;
    while (interval < bounds.size() && value > bounds[interval]) ++interval;
    ++counts[interval];
  }
}

}  // namespace msprobe::kernels
