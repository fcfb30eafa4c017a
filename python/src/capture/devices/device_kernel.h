// A kernel of somebody else (Triton, Ascend C) that measures a large tensor in one pass, in place
// of PyTorch's operations: statistics, counts and the sums of the fingerprint.
// msprobe/pytorch/device_kernels.py is its Python side and says what it writes.
//
//   SetDeviceKernel({"triton", measure, supports});          // for the process
//   if (const DeviceKernel* kernel = KernelFor(&torch, dtype))
//     // `there`: KernelBytes(sums) uint8
//     MeasureByKernel(&torch, *kernel, tensor, sums, scratch, there);
//   kernels::Stats s = StatisticsFromKernel(sums, on_the_host);
#pragma once

#include <cstddef>
#include <string>

#include "capture/devices/device_fingerprint.h"
#include "capture/devices/torch_calls.h"
#include "capture/python/py_ref.h"
#include "engine/kernels/stats.h"
#include "engine/tensor/dtype.h"

namespace msprobe::capture {

struct DeviceKernel {
  std::string name;
  PyRef measure;   // (tensor, sums, numbers, counts, low_keys, high_keys)
  PyRef supports;  // (dtype) -> bool
};

void SetDeviceKernel(DeviceKernel kernel);  // `measure` null: there is none any more
// Null: no kernel supports the dtype.
const DeviceKernel* KernelFor(TorchCalls* torch, DType dtype);

size_t KernelBytes(const BlockSums& sums);
// `plain`: contiguous, without a graph. False after a failure.
bool MeasureByKernel(TorchCalls* torch, const DeviceKernel& kernel, const PyRef& plain,
                     const BlockSums& sums, const FingerprintScratch& scratch, const PyRef& there);
kernels::Stats StatisticsFromKernel(const BlockSums& sums, const char* data);

}  // namespace msprobe::capture
