#include "capture/stability/changed_input.h"

#include "capture/stability/framework_state.h"
#include "capture/stability/held_call.h"
#include "capture/values/tensor_access.h"
#include "engine/kernels/perturb.h"
#include "engine/stability/limits.h"

namespace msprobe::capture {
namespace {

using dump::Perturbation;

bool IsHalf(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }
bool IsFloat(DType dtype) {
  return IsHalf(dtype) || dtype == DType::kFloat32 || dtype == DType::kFloat64;
}

// Changes the elements of a tensor of the host. False: none is another one now.
bool ChangeElements(Perturbation perturbation, const TensorView& view) {
  switch (perturbation) {
    case Perturbation::kAddNoise:
      return kernels::AddNoise(view, stability::LimitsOf(view.dtype).noise) > 0;
    case Perturbation::kBitNoise:
      return kernels::FlipLastBit(view) > 0;
    case Perturbation::kChangeValue:
      return kernels::SwapEnds(view);
    default:
      return false;
  }
}

}  // namespace

Message ChangedInput::why_not() const {
  switch (perturbation_) {
    case Perturbation::kImprovePrecision:
      return "compute in full precision already"_t;
    case Perturbation::kChangeValue:
      return seen_float_ ? "take fewer than two rows"_t : "take no float tensor"_t;
    default:
      return seen_float_ ? "take numbers too small to change"_t : "take no float tensor"_t;
  }
}

// A copy on the host is changed; the copy on the device is made of it.
PyRef ChangedInput::Noisy(PyObject* tensor) {
  const PyRef detached = Detached(tensor);
  if (!detached) return PyRef();
  const PyRef arguments = PyRef::Steal(Py_BuildValue("(s)", "cpu"));
  const PyRef keywords = PyRef::Steal(Py_BuildValue("{s:O}", "copy", Py_True));
  const PyRef to = PyRef::Steal(PyObject_GetAttrString(detached.get(), "to"));
  PyRef host =
      to ? PyRef::Steal(PyObject_Call(to.get(), arguments.get(), keywords.get())) : PyRef();
  ClearError();
  if (!host) return PyRef();
  const TensorAccess access(host.get());
  if (!access.readable() || access.resolved() != nullptr) return PyRef();
  applied_ = ChangeElements(perturbation_, access.view());
  const PyRef device = PyRef::Steal(PyObject_GetAttrString(tensor, "device"));
  ClearError();
  return device ? CallMethod(host.get(), "to", device) : PyRef();
}

PyRef ChangedInput::Converted(PyObject* tensor, DType dtype, bool on_host, bool may_share) {
  const PyRef detached = Detached(tensor);
  applied_ |= on_host;
  PyRef result = detached && on_host ? CallMethod(detached.get(), "cpu") : detached;
  bool is_new = result.get() != detached.get();  // of a tensor of the host, cpu() is the tensor
  if (result && IsHalf(dtype)) {
    result = CallMethod(result.get(), "float");
    applied_ = is_new = true;
  }
  other_precision_ |= is_new;
  return is_new || may_share || !result ? result : Copied(result.get());
}

PyRef ChangedInput::Of(PyObject* tensor, bool may_share) {
  const TensorAccess access(tensor, Fetch::kNever);
  const DType dtype = access.element_type();
  if (perturbation_ == Perturbation::kImprovePrecision)
    return Converted(tensor, dtype, false, may_share);
  if (perturbation_ == Perturbation::kToCpu) return Converted(tensor, dtype, true, may_share);
  if (perturbation_ == Perturbation::kNoChange || seen_float_ || !IsFloat(dtype))
    return may_share ? Detached(tensor) : Copied(tensor);
  seen_float_ = true;
  dtype_ = dtype;
  return Noisy(tensor);
}

}  // namespace msprobe::capture
