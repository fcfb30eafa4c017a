// What one kernel of a framework may add to the rounding of its inputs: the rules of the error
// analysis, by the shapes of the kernel's tensors.
//
//   const KernelCall product{.name = "aten::mm", .inputs = {{8, 512}, {512, 4}}, .outputs = {{8,
//       4}}};
//   const KernelRounding mm = RoundingOf(product, DType::kBFloat16, DType::kFloat32);
//   // mm.terms == 512, mm.input == sqrt(512) * 2^-24
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tensor/dtype.h"

namespace msprobe::accuracy {

struct KernelCall {
  std::string_view name;   // "aten::mm"
  bool pointwise = false;  // each element of a result depends on one element of each input
  bool inside = false;     // it is a step of a kernel that may round inside
  std::vector<std::vector<int64_t>> inputs = {}, outputs = {};  // shapes of floats
};
struct KernelRounding {
  double input = 0;   // relative error of each element of an input, signs of chance
  double output = 0;  // relative error of each element of a result
  // The same of a result with fewer elements than an input has, where this is another one; else 0.
  double sum = 0;
  int64_t terms = 1;      // the most that are summed to one element
  bool in_dtype = false;  // it is known to round inside, to the dtype of its result
};
// `result`: the dtype of the kernel's results; `sums`: that in which it accumulates.
KernelRounding RoundingOf(const KernelCall& kernel, DType result, DType sums);

// What a bound comes from, for people: "mm (sum of 512 terms), add".
struct NamedKernel {
  std::string name;
  int64_t terms = 1;
};
std::string KernelsText(std::span<const NamedKernel> kernels);

}  // namespace msprobe::accuracy
