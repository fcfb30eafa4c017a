// Random numbers of a device. As on a GPU, the state is a seed and an offset; each kernel draws
// from a generator of its own.
#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>
#include <vector>

#include "simulator.h"

namespace simnpu {

struct Generator final : c10::GeneratorImpl {
  explicit Generator(c10::DeviceIndex index)
      : c10::GeneratorImpl(c10::Device(kNpu, index),
                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}
  void set_current_seed(uint64_t seed) override { seed_ = seed, offset_ = 0; }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return seed_;
  }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.numel() == 16 && state.is_cpu(), "RNG state must be 16 bytes on the host");
    const auto* bytes = static_cast<const char*>(state.data());
    std::memcpy(&seed_, bytes, 8), std::memcpy(&offset_, bytes + 8, 8);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    Tensor state = at::empty({16}, at::TensorOptions(at::kByte));
    auto* bytes = static_cast<char*>(state.data_ptr());
    std::memcpy(bytes, &seed_, 8), std::memcpy(bytes + 8, &offset_, 8);
    return state.getIntrusivePtr();
  }
  Generator* clone_impl() const override {
    auto* copy = new Generator(device().index());
    copy->seed_ = seed_, copy->offset_ = offset_;
    return copy;
  }
  static c10::DeviceType device_type() { return kNpu; }
  at::Generator OfNextKernel() {
    const std::lock_guard lock(mutex_);
    const uint64_t seed = (seed_ * 0x9e3779b97f4a7c15u) ^ ((offset_ + 1) * 0xbf58476d1ce4e5b9u);
    offset_ += 4;
    return at::make_generator<at::CPUGeneratorImpl>(seed);
  }

 private:
  uint64_t seed_ = c10::default_rng_seed_val, offset_ = 0;
};

inline const at::Generator& DefaultGenerator(c10::DeviceIndex index) {
  static auto& all = *[] {
    auto* made = new std::vector<at::Generator>;
    for (int i = 0; i < kDevices; ++i)
      made->push_back(at::make_generator<Generator>(static_cast<c10::DeviceIndex>(i)));
    return made;
  }();
  return all.at(index < 0 ? current_device : index);
}

}  // namespace simnpu
