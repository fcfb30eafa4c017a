#include "capture/values/precision_policy.h"

#include <Python.h>

#include <string_view>

#include "capture/python/framework.h"
#include "capture/python/loaded_library.h"
#include "capture/python/py_ref.h"

namespace msprobe::capture {
namespace {

constexpr char kTorch[] = "libtorch_cpu.so";

// The kinds of devices that have autocast; `number` is that of c10::DeviceType. Before PyTorch 2.4
// each has functions of its own.
struct Device {
  std::string_view name;  // "": as the backend has named itself
  int8_t number;
  const char *enabled, *dtype;
};
constexpr std::array<Device, 4> kDevices = {{
    {"cpu", 0, "_ZN2at8autocast14is_cpu_enabledEv", "_ZN2at8autocast22get_autocast_cpu_dtypeEv"},
    {"cuda", 1, "_ZN2at8autocast10is_enabledEv", "_ZN2at8autocast22get_autocast_gpu_dtypeEv"},
    {"xpu", 12, "_ZN2at8autocast14is_xpu_enabledEv", "_ZN2at8autocast22get_autocast_xpu_dtypeEv"},
    {"", 20, "_ZN2at8autocast24is_privateuseone_enabledEv",
     "_ZN2at8autocast32get_autocast_privateuseone_dtypeEv"},
}};

struct Functions {
  int8_t (*default_dtype)() = nullptr;
  bool (*enabled)(int8_t device) = nullptr;
  int8_t (*dtype)(int8_t device) = nullptr;
  struct OfDevice {  // before PyTorch 2.4
    bool (*enabled)() = nullptr;
    int8_t (*dtype)() = nullptr;
  };
  std::array<OfDevice, kDevices.size()> of;

  Functions() {
    FindLoaded(&default_dtype, "libc10.so", "_ZN3c1031get_default_dtype_as_scalartypeEv");
    FindLoaded(&enabled, kTorch, "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE");
    FindLoaded(&dtype, kTorch, "_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE");
    for (size_t i = 0; i < kDevices.size(); ++i) {
      FindLoaded(&of[i].enabled, kTorch, kDevices[i].enabled);
      FindLoaded(&of[i].dtype, kTorch, kDevices[i].dtype);
    }
  }

  bool known() const {
    return default_dtype != nullptr && ((enabled != nullptr && dtype != nullptr) ||
                                        (of[0].enabled != nullptr && of[0].dtype != nullptr));
  }
  // The dtype to which autocast casts on a device; `off` where it is off.
  int8_t Autocast(size_t i, int8_t off) const {
    if (enabled != nullptr && dtype != nullptr)
      return enabled(kDevices[i].number) ? dtype(kDevices[i].number) : off;
    return of[i].enabled != nullptr && of[i].dtype != nullptr && of[i].enabled() ? of[i].dtype()
                                                                                 : off;
  }
};

std::string NameOf(int8_t dtype) {
  switch (dtype) {  // of c10::ScalarType, those that PyTorch accepts for both
    case 5:
      return "float16";
    case 6:
      return "float32";
    case 7:
      return "float64";
    case 15:
      return "bfloat16";
    default:
      return "dtype " + std::to_string(dtype);
  }
}

// "npu": the name that a backend outside of PyTorch has given itself.
std::string NameOfBackend() {
  const PyRef c =
      PyRef::Borrow(PyDict_GetItemString(PyImport_GetModuleDict(), "torch._C"));  // or null
  const PyRef name =
      c ? PyRef::Steal(PyObject_CallMethod(c.get(), "_get_privateuse1_backend_name", nullptr))
        : PyRef();
  ClearError();
  return name ? std::string(Utf8(name.get())) : "privateuseone";
}

}  // namespace

PrecisionPolicy PrecisionPolicy::Now() {
  PrecisionPolicy now;
  if (!Framework::Get().is_torch()) return now;
  static const Functions functions;
  if (!functions.known()) return now;
  now.default_dtype_ = functions.default_dtype();
  for (size_t i = 0; i < kDevices.size(); ++i) now.autocast_[i] = functions.Autocast(i, kNone);
  return now;
}

std::string PrecisionPolicy::Text() const {
  if (default_dtype_ == kNone) return "";
  std::string text = NameOf(default_dtype_);
  for (size_t i = 0; i < kDevices.size(); ++i) {
    if (autocast_[i] == kNone) continue;
    const std::string device =
        kDevices[i].name.empty() ? NameOfBackend() : std::string(kDevices[i].name);
    text += ", autocast " + device + " " + NameOf(autocast_[i]);
  }
  return text;
}

}  // namespace msprobe::capture
