#include "capture/devices/device_statistics.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "engine/tensor/tensor_view.h"

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

bool CanReduce(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat32;
}

bool ReduceThere(TorchCalls* calls, const PyRef& tensor, const PyRef& extremes, const PyRef& sums) {
  TorchCalls& torch = *calls;
  const auto slot = [&](const PyRef& of, long i) {
    return torch.Call(of, "select", PyRef::Steal(PyLong_FromLong(0)),
                      PyRef::Steal(PyLong_FromLong(i)));
  };
  const PyRef min = slot(extremes, 0), max = slot(extremes, 1);
  const PyRef sum = slot(sums, 0), norm = slot(sums, 1);
  const PyRef float32 = torch.Constant("float32"), linalg = torch.Constant("linalg");
  const PyRef dims = PyRef::Steal(PyTuple_New(0));  // all
  if (!torch.ok()) return false;
  const auto reduce = [&](const PyRef& module, const char* name, const PyRef& out, bool is_sum) {
    const PyRef function = torch.Get(module, name);
    const PyRef names = PyRef::Steal(PyDict_New());
    const bool narrow = out.get() != sum.get() && out.get() != norm.get();
    if (!function || !names || PyDict_SetItemString(names.get(), "out", out.get()) != 0 ||
        (!narrow && PyDict_SetItemString(names.get(), "dtype", float32.get()) != 0) ||
        (is_sum && PyDict_SetItemString(names.get(), "dim", dims.get()) != 0))
      return;
    const PyRef all = PyRef::Steal(PyTuple_Pack(1, tensor.get()));
    (void)torch.Checked(all ? PyObject_Call(function.get(), all.get(), names.get()) : nullptr);
  };
  reduce(torch.torch(), "aminmax", PyRef::Steal(PyTuple_Pack(2, min.get(), max.get())), false);
  reduce(torch.torch(), "sum", sum, true);
  reduce(linalg, "vector_norm", norm, false);
  return torch.ok();
}

kernels::Stats StatisticsFromReduced(const char* numbers, DType dtype, int64_t count) {
  // The engine reads each dtype: an extreme is the maximum of one element.
  const auto element = [&](int i) {
    const TensorView one{
        .data = numbers + static_cast<size_t>(i) * DTypeSize(dtype), .dtype = dtype, .ndim = 0};
    return kernels::ComputeStats(one).max;
  };
  float sums[2];
  std::memcpy(sums, numbers + 8, sizeof sums);
  kernels::Stats s;
  s.count = count;
  s.min = element(0), s.max = element(1);
  s.mean = static_cast<double>(sums[0]) / static_cast<double>(count);
  s.norm = sums[1];
  // Whether there are any; how many is not known.
  s.nan = std::isnan(s.max) ? 1 : 0;
  s.pos_inf = s.max == std::numeric_limits<double>::infinity() ? 1 : 0;
  s.neg_inf = s.min == -std::numeric_limits<double>::infinity() ? 1 : 0;
  return s;
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
