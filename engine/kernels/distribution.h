// How the elements of a tensor are spread: how many lie between given bounds, which are positive.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/tensor/tensor_view.h"

namespace msprobe {
class ThreadPool;
}
namespace msprobe::kernels {

// Dtypes with one real value an element: not complex, not kFloat4E2M1X2.
bool HasOrder(DType dtype);

// One pass over memory. Answers bounds.size() + 1 counts, of elements in (-inf, bounds[0]],
// (bounds[0], bounds[1]], ..., (bounds.back(), inf); infinities count at the ends, NaN nowhere.
// `bounds` ascend. `positive`: null, or numel() bytes that become 1 where the element, in logical
// order, is greater than zero, else 0. HasOrder(view.dtype) only.
//
//   std::vector<uint8_t> up(static_cast<size_t>(view.numel()));
//   std::vector<int64_t> counts = CountIntervals(view, {{-1.0, 0.0, 1.0}}, up.data());
std::vector<int64_t> CountIntervals(const TensorView& view, std::span<const double> bounds,
                                    uint8_t* positive = nullptr, ThreadPool* pool = nullptr);

}  // namespace msprobe::kernels
