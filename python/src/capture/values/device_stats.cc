#include "capture/values/device_stats.h"

#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <map>
#include <string_view>

#include "capture/calls/interpose.h"
#include "capture/python/torch_api.h"
#include "capture/values/tensor_access.h"

namespace msprobe::capture {
namespace {

constexpr int kValues = 10;

// Calls operations of PyTorch by name. After a failure (the device does not have the operation) every
// later result is null, and Ok() is false.
class Torch {
 public:
  Torch() : torch_(PyRef::Steal(PyImport_ImportModule("torch"))) {}
  ~Torch() { ClearError(); }

  PyRef Constant(const char* name) { return Get(torch_, name); }
  PyRef Call(const PyRef& tensor, const char* method) {
    const PyRef function = Get(tensor, method);
    return Checked(function ? PyObject_CallNoArgs(function.get()) : nullptr);
  }
  PyRef Call(const PyRef& tensor, const char* method, const PyRef& argument) {
    const PyRef function = Get(tensor, method);
    return Checked(function && argument ? PyObject_CallOneArg(function.get(), argument.get())
                                        : nullptr);
  }
  PyRef Function(const char* name, const PyRef& argument) { return Call(torch_, name, argument); }
  PyRef List(std::initializer_list<const PyRef*> items) {
    PyRef list = PyRef::Steal(PyList_New(0));
    for (const PyRef* item : items) {
      if (!*item || !list || PyList_Append(list.get(), item->get()) != 0) return Checked(nullptr);
    }
    return list;
  }
  bool ok() const { return ok_; }

 private:
  PyRef Get(const PyRef& object, const char* name) {
    return Checked(object && ok_ ? PyObject_GetAttrString(object.get(), name) : nullptr);
  }
  PyRef Checked(PyObject* result) {
    ok_ = ok_ && result != nullptr;
    return PyRef::Steal(result);
  }

  PyRef torch_;
  bool ok_ = true;
};

// The ten values of a tensor that is not empty, as one tensor of the same device.
PyRef Measure(Torch& torch, const PyRef& tensor, DTypeKind kind) {
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

kernels::Stats StatsFrom(const double* v, int64_t count) {
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

long Number(const PyRef& value) {
  const long number = value ? PyLong_AsLong(value.get()) : -1;
  ClearError();
  return number;
}

}  // namespace

bool DeviceStats::TakesHost() {
  const char* text = std::getenv("MSPROBE_STATISTICS");
  return text != nullptr && std::string_view(text) == "framework";
}

int64_t DeviceStats::Add(PyObject* tensor, DType dtype) {
  const Interposer::Pause pause;
  const QuietTransforms quiet;
  Torch torch;
  const PyRef object = PyRef::Borrow(tensor);
  const long count = Number(torch.Call(object, "numel"));
  if (!torch.ok() || count < 0) return -1;
  Pending pending{.ticket = next_ticket_, .count = count, .device = -1, .values = {}};
  if (count > 0) {
    pending.values = Measure(torch, object, DTypeKindOf(dtype));
    pending.device = Number(torch.Call(object, "get_device"));
    if (!torch.ok()) return -1;
  }
  pending_.push_back(std::move(pending));
  return next_ticket_++;
}

std::vector<std::pair<int64_t, kernels::Stats>> DeviceStats::Fetch() {
  const Interposer::Pause pause;
  const QuietTransforms quiet;
  std::vector<std::pair<int64_t, kernels::Stats>> known;
  std::map<long, std::vector<const Pending*>> devices;
  for (const Pending& pending : pending_) {
    if (pending.count == 0) {
      known.emplace_back(pending.ticket, kernels::Stats());
    } else {
      devices[pending.device].push_back(&pending);
    }
  }
  for (const auto& [device, tensors] : devices) {
    Torch torch;
    const PyRef list = PyRef::Steal(PyList_New(0));
    for (const Pending* pending : tensors)
      if (!list || PyList_Append(list.get(), pending->values.get()) != 0) break;
    const PyRef host = torch.Call(torch.Function("cat", list), "cpu");
    if (!torch.ok()) continue;
    const TensorAccess access(host.get());
    if (!access.readable() ||
        access.view().numel() != static_cast<int64_t>(kValues * tensors.size()))
      continue;
    const auto* values = static_cast<const double*>(access.view().data);
    for (size_t i = 0; i < tensors.size(); ++i)
      known.emplace_back(tensors[i]->ticket, StatsFrom(values + kValues * i, tensors[i]->count));
  }
  pending_.clear();
  return known;
}

}  // namespace msprobe::capture
