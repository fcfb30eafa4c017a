// What PyTorch asks a backend for: its devices, streams and events (Guard), its generators and
// pinned memory (Hooks).
#pragma once

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "allocators.h"
#include "generator.h"

namespace simnpu {

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static c10::Stream StreamOf(int device, int id) {
    return c10::Stream(c10::Stream::UNSAFE,
                       c10::Device(kNpu, static_cast<c10::DeviceIndex>(device)), id);
  }
  c10::DeviceType type() const override { return kNpu; }
  c10::Device exchangeDevice(c10::Device d) const override {
    const c10::Device old = getDevice();
    setDevice(d);
    return old;
  }
  c10::Device getDevice() const override {
    return c10::Device(kNpu, static_cast<c10::DeviceIndex>(current_device));
  }
  void setDevice(c10::Device d) const override {
    TORCH_CHECK(d.index() < kDevices, "invalid NPU device ", d.index(), " of ", kDevices);
    if (d.index() >= 0) current_device = d.index();
  }
  void uncheckedSetDevice(c10::Device d) const noexcept override {
    if (d.index() >= 0) current_device = d.index();
  }
  c10::Stream getStream(c10::Device d) const noexcept override {
    const int device = d.index() < 0 ? current_device : d.index();
    return StreamOf(device, current_stream[device]);
  }
  c10::Stream getDefaultStream(c10::Device d) const override { return StreamOf(d.index(), 0); }
  c10::Stream getNewStream(c10::Device d, int) const override {
    const int device = d.index() < 0 ? current_device : d.index();
    const std::lock_guard lock(Sim().mutex);
    Sim().ends[device].push_back(0);
    return StreamOf(device, static_cast<int>(Sim().ends[device].size()) - 1);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool) const override {
    return getNewStream(d, 0);
  }
  c10::Stream exchangeStream(c10::Stream s) const noexcept override {
    const c10::Stream old = getStream(s.device());
    current_stream[s.device_index()] = static_cast<int>(s.id());
    return old;
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(kDevices);
  }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    const Inside inside;
    if (*event == nullptr) *event = new Event;
    Event& e = *static_cast<Event*>(*event);
    e.device = stream.device_index(), e.stream = static_cast<int>(stream.id());
    e.time = Sim().EndOfStream(e.device, e.stream), e.ticket = Sim().ticket();
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    const std::lock_guard lock(Sim().mutex);
    double& end = Sim().ends[stream.device_index()][stream.id()];
    end = std::max(end, static_cast<Event*>(event)->time);
  }
  bool queryEvent(void* event) const override {
    const Inside inside;
    return event == nullptr || Sim().HasPassed(*static_cast<Event*>(event));
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void synchronizeEvent(void* event) const override {
    const Inside inside;
    if (event == nullptr) return;
    const Event& e = *static_cast<Event*>(event);
    Sim().Wait("event", e.time, e.ticket);
  }
  bool queryStream(const c10::Stream& s) const override {
    const Inside inside;
    return Sim().HasPassed({s.device_index(), static_cast<int>(s.id()),
                            Sim().EndOfStream(s.device_index(), static_cast<int>(s.id())),
                            Sim().ticket()});
  }
  void synchronizeStream(const c10::Stream& s) const override {
    const Inside inside;
    Sim().Wait("stream", Sim().EndOfStream(s.device_index(), static_cast<int>(s.id())),
               Sim().ticket());
  }
  void synchronizeDevice(c10::DeviceIndex index) const override {
    const Inside inside;
    Sim().WaitForDevice(index < 0 ? current_device : index, "synchronize");
  }
  double elapsedTime(void* a, void* b, c10::DeviceIndex) const override {
    return (static_cast<Event*>(b)->time - static_cast<Event*>(a)->time) / 1e3;
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return kDevices > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(kDevices); }
  void setCurrentDevice(c10::DeviceIndex d) const override {
    Guard().setDevice(c10::Device(kNpu, d));
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(current_device);
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex d) const override {
    return Guard().exchangeDevice(c10::Device(kNpu, d)).index();
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex d) const override {
    return d < 0 ? getCurrentDevice() : exchangeDevice(d);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex d) const override {
    return DefaultGenerator(d);
  }
  at::Generator getNewGenerator(c10::DeviceIndex d) const override {
    return at::make_generator<Generator>(static_cast<c10::DeviceIndex>(d < 0 ? current_device : d));
  }
  at::Device getDeviceFromPtr(void* p) const override {
    return at::Device(kNpu, static_cast<c10::DeviceIndex>(TheMemory().DeviceOf(p)));
  }
  bool isPinnedPtr(const void* p) const override { return PinnedAllocator::Holds(p); }
  at::Allocator* getPinnedMemoryAllocator() const override {
    static PinnedAllocator& allocator = *new PinnedAllocator;
    return &allocator;
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    current_device = storage.device().index();
    c10::DataPtr larger = TheAllocator().allocate(bytes);
    const size_t both = std::min(bytes, storage.nbytes());
    if (both > 0) TheAllocator().copy_data(larger.get(), storage.data(), both);
    storage.set_data_ptr_noswap(std::move(larger));
    storage.set_nbytes(bytes);
  }
};

}  // namespace simnpu
