// What the simulated device is told by the environment (README.md lists the variables), and what an
// operation costs.
#pragma once

#include <c10/core/DeviceType.h>

#include <cstdlib>

namespace simnpu {

constexpr auto kNpu = c10::DeviceType::PrivateUse1;

inline double Setting(const char* name, double otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != 0 ? std::atof(text) : otherwise;
}

// What an operation costs, in microseconds; bytes and operations for each of them.
struct Costs {
  double launch = Setting("SIMNPU_LAUNCH_US", 4);                // of the host's time
  double kernel = Setting("SIMNPU_KERNEL_US", 5);                // the shortest kernel
  double bytes = Setting("SIMNPU_BYTES_PER_US", 1e6);            // 1 TB/s
  double flops = Setting("SIMNPU_FLOPS_PER_US", 1e8);            // 100 TFLOP/s
  double query = Setting("SIMNPU_QUERY_US", 1);                  // to ask whether an event has come
  double copy = Setting("SIMNPU_COPY_US", 15);                   // latency between host and device
  double copy_bytes = Setting("SIMNPU_COPY_BYTES_PER_US", 2e4);  // 20 GB/s
};

inline const int kDevices = static_cast<int>(Setting("SIMNPU_DEVICES", 2));
inline const bool kAsync = Setting("SIMNPU_ASYNC", 0) != 0;
inline const bool kFloat64 = Setting("SIMNPU_FLOAT64", 1) != 0;
inline const bool kPoison =
    Setting("SIMNPU_POISON", 0) != 0;  // memory that was freed or never written
inline const double kLimit = Setting("SIMNPU_MEMORY_MB", 65536) * 1e6;  // of each device
inline const double kDelay = Setting("SIMNPU_DELAY_US", 200);

}  // namespace simnpu
