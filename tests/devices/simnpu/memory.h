// The memory of the devices, in two mappings of the same size. What tensors point at is never
// accessible; the bytes lie in its shadow, which only kernels know. So a read or write of device
// memory on the host ends the process with SIGSEGV, at any time and in any thread.
#pragma once

#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "settings.h"

namespace simnpu {

constexpr size_t kDeviceBytes = size_t{1} << 36;

class Memory {
 public:
  Memory() {
    const auto map = [](int protection) {
      void* at = mmap(nullptr, kDeviceBytes * kDevices, protection,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      TORCH_CHECK(at != MAP_FAILED, "simnpu: no address space");
      return static_cast<char*>(at);
    };
    device_ = map(PROT_NONE);
    shadow_ = map(PROT_READ | PROT_WRITE);
    next_.resize(kDevices), used_.resize(kDevices), peak_.resize(kDevices),
        blocks_.resize(kDevices);
    free_.resize(kDevices);
  }
  int DeviceOf(const void* p) const {
    const auto at = static_cast<const char*>(p) - device_;
    return at >= 0 && at < static_cast<ptrdiff_t>(kDeviceBytes * kDevices)
               ? static_cast<int>(at / kDeviceBytes)
               : -1;
  }
  // Where the bytes of a device address really are.
  void* Shadow(const void* p) const {
    return p == nullptr ? nullptr : shadow_ + (static_cast<const char*>(p) - device_);
  }
  bool IsShadow(const void* p) const {
    const auto at = static_cast<const char*>(p) - shadow_;
    return at >= 0 && at < static_cast<ptrdiff_t>(kDeviceBytes * kDevices);
  }
  void* Allocate(int device, size_t bytes) {
    const size_t size = Rounded(bytes);
    const std::lock_guard lock(mutex_);
    TORCH_CHECK_WITH(OutOfMemoryError, static_cast<double>(used_[device] + size) <= kLimit,
                     "NPU out of memory. Tried to allocate ", size, " bytes");
    std::vector<size_t>& free = free_[device][size];
    size_t at = 0;
    if (!free.empty()) {
      at = free.back(), free.pop_back();
    } else {
      at = next_[device], next_[device] += size;
      TORCH_CHECK(next_[device] <= kDeviceBytes, "NPU out of memory");
    }
    used_[device] += size, ++blocks_[device];
    peak_[device] = std::max(peak_[device], used_[device]);
    char* const p = device_ + device * kDeviceBytes + at;
    if (kPoison) std::memset(Shadow(p), 0xff, size);
    return p;
  }
  void Free(void* p, size_t bytes) {
    const int device = DeviceOf(p);
    const size_t size = Rounded(bytes);
    if (kPoison) std::memset(Shadow(p), 0xff, size);
    const std::lock_guard lock(mutex_);
    free_[device][size].push_back(static_cast<char*>(p) - device_ - device * kDeviceBytes);
    used_[device] -= size, --blocks_[device];
  }
  std::map<std::string, size_t> Numbers(int device) {
    const std::lock_guard lock(mutex_);
    return {{"used", used_[device]}, {"peak", peak_[device]}, {"blocks", blocks_[device]}};
  }
  void ResetPeak(int device) {
    const std::lock_guard lock(mutex_);
    peak_[device] = used_[device];
  }

 private:
  static size_t Rounded(size_t bytes) { return (bytes + 511) / 512 * 512; }
  char *device_, *shadow_;
  std::mutex mutex_;
  std::vector<size_t> next_, used_, peak_, blocks_;
  std::vector<std::map<size_t, std::vector<size_t>>> free_;  // by size
};

inline Memory& TheMemory() {
  static Memory& memory = *new Memory;
  return memory;
}

}  // namespace simnpu
