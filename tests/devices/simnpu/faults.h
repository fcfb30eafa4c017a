// Kernels whose results are wrong, for tools that should find them.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <torch/library.h>

#include <limits>
#include <map>
#include <random>
#include <string>

#include "simulator.h"

namespace simnpu {

using Stack = torch::jit::Stack;

//   add V       adds V to each element            bf16         products are added up in bfloat16
//   inf         the first element is infinite
//   noise V     another error of relative size V at each call
//   swap        at every other call two elements change places, so no statistic changes
//   stale       the result of the call before, if that had the same shape
//   stride      the elements of the last two dimensions are read in the other order
//   ulp V       the error of another implementation: each element is off by up to V last places of
//               its dtype, the same at each call
//   int32       integers of 64 bits lose their high half
// The operation "*" stands for all that have no fault of their own.
struct Fault {
  std::string kind;
  double value;
};
inline std::map<std::string, Fault>& Faults() {
  static auto& faults = *new std::map<std::string, Fault>;
  return faults;
}

inline Tensor ProductInBf16(const Tensor& a, const Tensor& b) {
  const int64_t k = a.size(-1), step = 16;
  Tensor sum;
  for (int64_t at = 0; at < k; at += step) {
    const int64_t n = std::min(step, k - at);
    const Tensor part =
        at::matmul(a.narrow(-1, at, n).to(at::kFloat), b.narrow(-2, at, n).to(at::kFloat));
    sum = (sum.defined() ? sum + part : part).to(at::kBFloat16).to(at::kFloat);
  }
  return sum;
}

inline void Spoil(const std::string& name, const Fault& fault, const Stack& inputs,
                  const Tensor& result) {
  if (fault.kind == "int32" && result.scalar_type() == at::kLong) {
    result.bitwise_and_(0xffffffff);
    return;
  }
  if (!result.is_floating_point() || result.numel() == 0) return;
  if (fault.kind == "add") {
    result.add_(fault.value);
  } else if (fault.kind == "inf") {
    result.as_strided({1}, {1}).fill_(std::numeric_limits<double>::infinity());
  } else if (fault.kind == "noise") {
    result.mul_(1 + fault.value * at::randn({}, at::make_generator<at::CPUGeneratorImpl>(
                                                    std::random_device()()))
                                      .item<double>());
  } else if (fault.kind == "swap") {
    static int64_t calls = std::random_device()() % 2;
    if (calls++ % 2 == 0 && result.numel() > 2 && result.is_contiguous()) {
      const Tensor flat = result.view(-1), second = flat[1].clone();
      flat[1].copy_(flat[2]), flat[2].copy_(second);
    }
  } else if (fault.kind == "stale") {
    static auto& before = *new std::map<std::pair<std::string, std::vector<int64_t>>, Tensor>;
    const Tensor right = result.clone();
    Tensor& kept = before[{name, result.sizes().vec()}];
    if (kept.defined()) result.copy_(kept);
    kept = right;
  } else if (fault.kind == "stride") {
    if (result.dim() >= 2) result.copy_(result.transpose(-1, -2).reshape(result.sizes()).clone());
  } else if (fault.kind == "ulp") {
    const at::Generator fixed = at::make_generator<at::CPUGeneratorImpl>(result.numel());
    const double last = result.scalar_type() == at::kBFloat16 ? 0x1p-9
                        : result.scalar_type() == at::kHalf   ? 0x1p-12
                        : result.scalar_type() == at::kDouble ? 0x1p-54
                                                              : 0x1p-25;
    const Tensor error = at::rand(result.sizes(), fixed, at::TensorOptions(at::kDouble))
                             .sub_(0.5)
                             .mul_(2 * fault.value * last);
    result.copy_(result.to(at::kDouble) * (1 + error));
  } else if (fault.kind == "bf16") {
    if (name == "addmm" || name == "baddbmm")
      result.copy_(
          ProductInBf16(inputs[1].toTensor(), inputs[2].toTensor()).add_(inputs[0].toTensor()));
    else if (name == "mm" || name == "bmm")
      result.copy_(ProductInBf16(inputs[0].toTensor(), inputs[1].toTensor()));
  }
}

}  // namespace simnpu
