// Statistics of a tensor, computed by operations of the framework where the tensor lies. For
// tensors that are too large to be copied to the host. (A kernel of our own for a device would
// replace device_statistics.cc.)
//
//   TorchCalls torch;
//   const PyRef numbers = MeasureThere(&torch, tensor, DTypeKind::kFloat);   // on the device
//   kernels::Stats s = StatisticsFrom(static_cast<const double*>(copied_to_the_host), count);
#pragma once

#include "capture/devices/torch_calls.h"
#include "engine/kernels/stats.h"

namespace msprobe::capture {

inline constexpr int kDeviceNumbers = 10;

// Of a tensor of float16, bfloat16 or float32, by three reductions that need no memory of the
// tensor's size. They write into `extremes` (two elements of its dtype: minimum, maximum) and
// `sums` (two of float32: sum, norm), memory on its device. The sums are those of float32. Elements
// of a kind are not counted: a count is 1 where there are NaN or infinities, and 0 of zeros.
inline constexpr size_t kReducedBytes = 16;  // extremes at byte 0, sums at byte 8
bool CanReduce(DType dtype);
bool ReduceThere(TorchCalls* torch, const PyRef& tensor, const PyRef& extremes, const PyRef& sums);
kernels::Stats StatisticsFromReduced(const char* numbers, DType dtype, int64_t count);

// A tensor of kDeviceNumbers float64 on the device of `tensor`, which is not empty. Null after a
// failure: some devices have no float64.
PyRef MeasureThere(TorchCalls* torch, const PyRef& tensor, DTypeKind kind);
// `numbers`: its elements on the host. `count`: of the elements of the measured tensor. Without a
// fingerprint.
kernels::Stats StatisticsFrom(const double* numbers, int64_t count);

}  // namespace msprobe::capture
