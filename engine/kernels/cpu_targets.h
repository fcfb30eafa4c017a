#pragma once

#include <cstdint>

namespace msprobe::kernels {

// The SIMD targets of Highway that this CPU and its system can run, as bits HWY_AVX2 and so on.
//
// The wheel of `make wheel` contains no libhwy, which Debian has as a shared library only, and asks
// this function in its place (MSPROBE_STATIC). Only for x86-64: g++ compiles a single target on
// every other CPU, and then nobody asks.
int64_t CpuTargets();

}  // namespace msprobe::kernels
