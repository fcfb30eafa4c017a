// Statistics of a tensor, computed by operations of the framework where the tensor lies. For tensors that are too
// large to be copied to the host. (A kernel of our own for a device would replace device_statistics.cc.)
//
//   TorchCalls torch;
//   const PyRef numbers = MeasureThere(&torch, tensor, DTypeKind::kFloat);   // on the device
//   kernels::Stats s = StatisticsFrom(static_cast<const double*>(copied_to_the_host), count);
#pragma once

#include "capture/devices/torch_calls.h"
#include "engine/kernels/stats.h"

namespace msprobe::capture {

inline constexpr int kDeviceNumbers = 10;

// A tensor of kDeviceNumbers float64 on the device of `tensor`, which is not empty. Null after a failure: some
// devices have no float64.
PyRef MeasureThere(TorchCalls* torch, const PyRef& tensor, DTypeKind kind);
// `numbers`: its elements on the host. `count`: of the elements of the measured tensor. Without a fingerprint.
kernels::Stats StatisticsFrom(const double* numbers, int64_t count);

}  // namespace msprobe::capture
