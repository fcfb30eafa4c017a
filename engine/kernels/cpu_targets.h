#pragma once

#include <cstdint>

namespace msprobe::kernels {

// The SIMD targets of Highway that this CPU and its system can run, as bits HWY_AVX2 and so on.
//
// The wheel of `make wheel` does not contain libhwy, which Debian has as a shared library only; it
// uses this function instead (MSPROBE_STATIC). Needed on x86-64 only: for other CPUs g++ compiles a
// single target, and there is nothing to choose.
int64_t CpuTargets();

}  // namespace msprobe::kernels
