// A tensor of a device as a tensor of the host that has the same bytes: what the kernels compute
// with.
#pragma once

#include <ATen/EmptyTensor.h>
#include <torch/library.h>

#include "allocators.h"

namespace simnpu {

inline bool IsOurs(const Tensor& t) { return t.defined() && t.device().type() == kNpu; }

// A host tensor with the same bytes.
inline Tensor Alias(const Tensor& t) {
  if (!IsOurs(t)) return t;
  const c10::Storage& storage = t.storage();
  c10::Storage shadow(
      c10::Storage::use_byte_size_t(), storage.nbytes(),
      c10::DataPtr(TheMemory().Shadow(storage.data()), c10::Device(c10::DeviceType::CPU)), nullptr,
      /*resizable=*/false);
  Tensor alias = at::detail::make_tensor<c10::TensorImpl>(
      std::move(shadow), c10::DispatchKeySet(c10::DispatchKey::CPU), t.dtype());
  alias.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
  if (t.is_conj()) alias._set_conj(true);
  if (t.is_neg()) alias._set_neg(true);
  if (t.unsafeGetTensorImpl()->is_wrapped_number())
    alias.unsafeGetTensorImpl()->set_wrapped_number(true);
  return alias;
}

inline Tensor EmptyStrided(c10::IntArrayRef sizes, c10::IntArrayRef strides, at::ScalarType dtype,
                           int device) {
  const c10::DeviceGuard guard(c10::Device(kNpu, static_cast<c10::DeviceIndex>(device)));
  return at::detail::empty_strided_generic(
      sizes, strides, &TheAllocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype);
}

// Calls visit(tensor) -> tensor for each tensor of a value, in lists as well.
template <typename Visit>
c10::IValue Mapped(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) return visit(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& t : value.toTensorVector()) list.push_back(visit(t));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const std::optional<Tensor>& t : value.toOptionalTensorList())
      list.push_back(t.has_value() ? std::optional<Tensor>(visit(*t)) : std::nullopt);
    return list;
  }
  return value;
}

}  // namespace simnpu
