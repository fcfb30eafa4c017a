// Operations that are not those of the CPU: memory, views, copies, and their registration.
#pragma once

#include <ATen/NativeFunctions.h>

#include "device_hooks.h"
#include "launch.h"

namespace simnpu {

inline Tensor Empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
                    std::optional<at::Layout>, std::optional<at::Device> device,
                    std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(c10::device_or_default(device));
  return at::detail::empty_generic(size, &TheAllocator(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

inline Tensor EmptyStridedOp(c10::IntArrayRef size, c10::IntArrayRef stride,
                             std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                             std::optional<at::Device> device, std::optional<bool>) {
  const c10::Device d = c10::device_or_default(device);
  return EmptyStrided(size, stride, c10::dtype_or_default(dtype),
                      d.index() < 0 ? current_device : d.index());
}

inline Tensor AsStrided(const Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride,
                        std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}
inline Tensor View(const Tensor& self, c10::IntArrayRef size) {
  return at::native::view(self, size);
}
inline Tensor ReshapeAlias(const Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride) {
  return at::native::_reshape_alias(self, size, stride);
}
inline const Tensor& Resize(const Tensor& self, c10::IntArrayRef size,
                            std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(self.device());
  return at::native::resize_(self, size, format);
}
inline Tensor& SetStorage(Tensor& self, at::Storage source) {
  return at::native::set_(self, std::move(source));
}
inline Tensor& SetTensor(Tensor& self, const Tensor& source) {
  return at::native::set_tensor_(self, source);
}
inline Tensor& SetStorageOffset(Tensor& self, at::Storage source, int64_t offset,
                                c10::IntArrayRef size, c10::IntArrayRef stride) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  std::vector<int64_t> strides = stride.vec();
  if (stride.empty()) {  // dense
    strides.assign(size.size(), 1);
    for (size_t d = size.size(); d-- > 1;)
      strides[d - 1] = strides[d] * std::max<int64_t>(size[d], 1);
  }
  self.unsafeGetTensorImpl()->set_sizes_and_strides(size, strides, offset);
  return self;
}
inline void RecordStream(Tensor&, c10::Stream) {}

inline Tensor CopyFrom(const Tensor& from, const Tensor& to, bool non_blocking) {
  const Inside inside;
  Simulator& sim = Sim();
  const double bytes = static_cast<double>(from.numel() * from.element_size());
  const bool from_ours = IsOurs(from), to_ours = IsOurs(to);
  const int device = (from_ours ? from : to).device().index();
  const Tensor source = Alias(from), target = Alias(to);
  const auto copy = [source, target] {
    const at::DisableRecordFunctionGuard unseen;
    target.copy_(source);
  };
  if (from_ours && to_ours) {
    TORCH_CHECK(kFloat64 || from.numel() == 0 ||
                    (from.scalar_type() != at::kDouble && to.scalar_type() != at::kDouble),
                "\"copy_\" not implemented for 'Double' on NPU");
    sim.Count(sim.counts.kernels, "copy_");
    sim.Submit(device, std::max(sim.costs.kernel, 2 * bytes / sim.costs.bytes), copy);
    return to;
  }
  const double cost = sim.costs.copy + bytes / sim.costs.copy_bytes;
  if (to_ours) {
    const bool waits = !non_blocking || !from.is_pinned();
    sim.Count(sim.counts.copies, waits ? "host to device" : "host to device, async");
    if (waits && kAsync) {  // staged: the host may overwrite `from` at once
      sim.Submit(device, cost, [staged = from.clone(), target] { target.copy_(staged); });
    } else {
      sim.Submit(device, cost, copy);
    }
    if (!non_blocking) sim.WaitForDevice(device, "copy to device");
    return to;
  }
  // To memory that is not pinned, the driver waits as well.
  const bool waits = !non_blocking || !PinnedAllocator::Holds(to.storage().data());
  sim.Count(sim.counts.copies, waits ? "device to host" : "device to host, async");
  if (waits) {
    sim.Submit(device, cost, copy);
    sim.WaitForDevice(device, "copy to host");
    return to;
  }
  if (to.is_contiguous() && to.numel() > 0) std::memset(to.data_ptr(), 0xff, to.nbytes());
  if (kAsync) {
    sim.Submit(device, cost, copy);
  } else {
    sim.Submit(device, cost, [] {});
    sim.LandLater(sim.EndOfStream(device, current_stream[device]), to, source.clone());
  }
  return to;
}

inline Tensor CopyFromAndResize(const Tensor& from, const Tensor& to) {
  to.resize_(from.sizes());
  return CopyFrom(from, to, false);
}

inline at::Scalar LocalScalar(const Tensor& self) {
  const Inside inside;
  Sim().Count(Sim().counts.copies, "scalar to host");
  Sim().Submit(self.device().index(), Sim().costs.copy, [] {});
  Sim().WaitForDevice(self.device().index(), "item");
  return at::native::_local_scalar_dense_cpu(Alias(self));
}

}  // namespace simnpu
