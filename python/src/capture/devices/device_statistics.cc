#include "capture/devices/device_statistics.h"

#include <cstring>

namespace msprobe::capture {

PyRef MeasureThere(TorchCalls* calls, const PyRef& tensor, DTypeKind kind) {
  TorchCalls& torch = *calls;
  const PyRef float64 = torch.Constant("float64"), int64 = torch.Constant("int64");
  const PyRef plain = torch.Call(tensor, "detach");
  const bool is_complex = kind == DTypeKind::kComplex;
  const PyRef wide = is_complex
                         ? torch.Call(torch.Call(plain, "to", torch.Constant("complex128")), "abs")
                         : torch.Call(plain, "to", float64);
  const PyRef max = torch.Call(wide, "max"), min = torch.Call(wide, "min");
  const PyRef mean = torch.Call(wide, "mean");
  const PyRef squares = torch.Call(wide, "square");
  const PyRef norm = torch.Call(torch.Call(squares, "sum"), "sqrt");
  const PyRef values = torch.Function("stack", torch.List({&max, &min, &mean, &norm}));

  const auto count = [&](const PyRef& which) { return torch.Call(which, "sum"); };
  const PyRef nan = count(torch.Call(wide, "isnan")),
              positive = count(torch.Call(wide, "isposinf")),
              negative = count(torch.Call(wide, "isneginf")),
              zero = count(torch.Call(wide, "logical_not"));
  const PyRef counts = torch.Function("stack", torch.List({&nan, &positive, &negative, &zero}));

  // Integers beyond 2^53 do not fit a double, so their bits are copied into one.
  const bool is_float = kind == DTypeKind::kFloat || is_complex;
  const PyRef exact_max = is_float ? zero : torch.Call(torch.Call(plain, "max"), "to", int64);
  const PyRef exact_min = is_float ? zero : torch.Call(torch.Call(plain, "min"), "to", int64);
  const PyRef exact =
      torch.Call(torch.Function("stack", torch.List({&exact_max, &exact_min})), "view", float64);
  const PyRef counts64 = torch.Call(counts, "to", float64);
  return torch.Function("cat", torch.List({&values, &counts64, &exact}));
}

kernels::Stats StatisticsFrom(const double* v, int64_t count) {
  kernels::Stats s;
  s.count = count;
  s.max = v[0], s.min = v[1], s.mean = v[2], s.norm = v[3];
  s.nan = static_cast<int64_t>(v[4]);
  s.pos_inf = static_cast<int64_t>(v[5]);
  s.neg_inf = static_cast<int64_t>(v[6]);
  s.zero = static_cast<int64_t>(v[7]);
  std::memcpy(&s.int_max, &v[8], sizeof s.int_max);
  std::memcpy(&s.int_min, &v[9], sizeof s.int_min);
  return s;
}

}  // namespace msprobe::capture
