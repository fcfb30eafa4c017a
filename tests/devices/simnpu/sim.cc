// The simulated NPU: PyTorch's backend PrivateUse1 on a machine without an accelerator, as the
// Python module torch_npu._sim. README.md says what it simulates.
#include <ATen/autocast_mode.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include "operations.h"

namespace simnpu {

static Guard& guard = *new Guard;
static c10::impl::DeviceGuardImplRegistrar guard_registrar(kNpu, &guard);

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&Fallback>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", Empty);
  m.impl("empty_strided", EmptyStridedOp);
  m.impl("as_strided", AsStrided);
  m.impl("view", View);
  m.impl("_reshape_alias", ReshapeAlias);
  m.impl("resize_", Resize);
  m.impl("set_.source_Storage", SetStorage);
  m.impl("set_.source_Tensor", SetTensor);
  m.impl("set_.source_Storage_storage_offset", SetStorageOffset);
  m.impl("record_stream", RecordStream);
  m.impl("_copy_from", CopyFrom);
  m.impl("_copy_from_and_resize", CopyFromAndResize);
  m.impl("_local_scalar_dense", LocalScalar);
  // One kernel each, as devices have them; without these lines PyTorch composes them of others.
  const auto fused = torch::CppFunction::makeFromBoxedFunction<&Fallback>;
  for (const char* name :
       {"native_layer_norm", "native_group_norm", "native_dropout", "convolution_overrideable",
        "convolution_backward_overrideable", "embedding", "silu_backward", "logsumexp"})
    m.impl(name, fused());
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.starts_with("aten::_foreach_") && !name.overload_name.ends_with("out"))
      m.impl((name.name + (name.overload_name.empty() ? "" : "." + name.overload_name)).c_str(),
             fused());
  }
}

// CopyFrom takes conjugated and negated tensors as they are, as copy_ does.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace simnpu

namespace at::autocast {

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define SIMNPU_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(SIMNPU_LOWER)
#undef SIMNPU_LOWER
#define SIMNPU_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(SIMNPU_FP32)
#undef SIMNPU_FP32
#define SIMNPU_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(SIMNPU_PROMOTE)
#undef SIMNPU_PROMOTE
}

}  // namespace at::autocast

PYBIND11_MODULE(_sim, m) {
  using namespace simnpu;
  c10::SetAllocator(kNpu, &TheAllocator());
  at::RegisterPrivateUse1HooksInterface(new Hooks);

  m.def("device_count", [] { return kDevices; });
  m.def("current_device", [] { return current_device; });
  m.def("set_device",
        [](int d) { guard.setDevice(c10::Device(kNpu, static_cast<c10::DeviceIndex>(d))); });
  m.def("synchronize", [](int d) { guard.synchronizeDevice(static_cast<c10::DeviceIndex>(d)); });
  m.def("default_generator",
        [](int d) { return DefaultGenerator(static_cast<c10::DeviceIndex>(d)); });
  m.def("memory", [](int d) { return TheMemory().Numbers(d); });
  m.def("reset_peak", [](int d) { TheMemory().ResetPeak(d); });

  m.def("reset", [] {
    const Inside inside;
    const std::lock_guard lock(Sim().mutex);
    Sim().counts = {};
    Sim().busy = 0;
    Sim().trace.clear();
  });
  m.def("counts", [] {
    const std::lock_guard lock(Sim().mutex);
    return std::map<std::string, std::map<std::string, int64_t>>{{"kernels", Sim().counts.kernels},
                                                                 {"syncs", Sim().counts.syncs},
                                                                 {"copies", Sim().counts.copies}};
  });
  m.def("trace", [](bool on) {
    const std::lock_guard lock(Sim().mutex);
    Sim().tracing = on;
    return Sim().trace;
  });
  // The clocks of the host and of the device, in microseconds.
  m.def("clocks", [](int d) {
    const Inside inside;
    return std::make_pair(Sim().host, Sim().End(d));
  });
  // What the device has had to do since reset(), in microseconds.
  m.def("busy", [] {
    const std::lock_guard lock(Sim().mutex);
    return Sim().busy;
  });
  m.def("spoil", [](const std::string& op, const std::string& kind, double value) {
    if (kind.empty())
      Faults().erase(op);
    else
      Faults()[op] = {kind, value};
  });
  m.def("watch_overflow", [](bool on) { Sim().watches_overflow = on; });
  m.def("overflows", [] {
    const Inside inside;
    Sim().watches_overflow = true;
    Sim().WaitForDevice(current_device, "overflow flag");
    return Sim().overflows;
  });
  m.def("clear_overflow", [] {
    const Inside inside;
    Sim().WaitForDevice(current_device, "overflow flag");
    Sim().overflows = 0;
    Sim().watches_overflow = true;
  });
}
