// The distribution of a tensor's elements: how many lie between given bounds, and which are
// positive.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/tensor/tensor_view.h"

namespace msprobe {
class ThreadPool;
}
namespace msprobe::kernels {

// Whether a dtype has one real value in each element: not complex, not kFloat4E2M1X2.
bool HasOrder(DType dtype);

// One pass over memory. Returns bounds.size() + 1 counts: of elements in (-inf, bounds[0]],
// (bounds[0], bounds[1]], ..., (bounds.back(), inf). Infinities count in the first and the last
// interval, NaN in none. `bounds` must be ascending. `positive`: null, or numel() bytes in logical
// order, which become 1 where the element is greater than zero, else 0. Only for dtypes with
// HasOrder.
//
//   std::vector<uint8_t> up(static_cast<size_t>(view.numel()));
//   std::vector<int64_t> counts = CountIntervals(view, {{-1.0, 0.0, 1.0}}, up.data());
std::vector<int64_t> CountIntervals(const TensorView& view, std::span<const double> bounds,
                                    uint8_t* positive = nullptr, ThreadPool* pool = nullptr);

}  // namespace msprobe::kernels
