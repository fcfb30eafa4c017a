// Allocators of device memory and of pinned memory of the host.
#pragma once

#include <c10/core/Allocator.h>

#include <map>
#include <mutex>

#include "memory.h"
#include "simulator.h"

namespace simnpu {

struct Block {
  void* address;
  size_t bytes;
};

inline void FreeBlock(void* context) {
  Block* const block = static_cast<Block*>(context);
  // In the order of the stream: kernels that were launched before may still use it.
  Sim().Enqueue([b = *block] { TheMemory().Free(b.address, b.bytes); }, 0);
  delete block;
}

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(kNpu, static_cast<c10::DeviceIndex>(current_device));
    if (bytes == 0) return {nullptr, device};
    void* const address = TheMemory().Allocate(current_device, bytes);
    return {address, new Block{address, bytes}, &FreeBlock, device};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    Sim().Enqueue([=] { std::memcpy(TheMemory().Shadow(to), TheMemory().Shadow(from), bytes); }, 0);
  }
};

inline Allocator& TheAllocator() {
  static Allocator& allocator = *new Allocator;
  return allocator;
}

// Pinned memory of the host.
struct PinnedAllocator final : c10::Allocator {
  static std::map<const char*, size_t>& Ranges() {
    static auto& ranges = *new std::map<const char*, size_t>;
    return ranges;
  }
  static std::mutex& Mutex() {
    static auto& mutex = *new std::mutex;
    return mutex;
  }
  static bool Holds(const void* p) {
    const std::lock_guard lock(Mutex());
    const char* const at = static_cast<const char*>(p);
    auto it = Ranges().upper_bound(at);
    return it != Ranges().begin() && (--it, at < it->first + it->second);
  }
  static void Free(void* p) {
    {
      const std::lock_guard lock(Mutex());
      Ranges().erase(static_cast<char*>(p));
    }
    // A copy into it may be under way.
    Sim().Enqueue([p] { std::free(p); }, 0);
  }
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::Device(c10::DeviceType::CPU)};
    void* const p = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    const std::lock_guard lock(Mutex());
    Ranges()[static_cast<char*>(p)] = bytes;
    return {p, p, &Free, c10::Device(c10::DeviceType::CPU)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

}  // namespace simnpu
