#include "engine/kernels/cpu_targets.h"

#include <hwy/highway.h>

#if HWY_ARCH_X86_64
#include <cpuid.h>
#endif

namespace msprobe::kernels {

#if HWY_ARCH_X86_64

namespace {

// Clang 14's __builtin_cpu_supports does not know these three.
bool HasF16cAndLzcnt() {
  unsigned int a, b, c, d;
  const bool has_f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & (1u << 29));
  const bool has_lzcnt = __get_cpuid(0x80000001, &a, &b, &c, &d) && (c & (1u << 5));
  return has_f16c && has_lzcnt;
}

bool HasVaes() {
  unsigned int a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c & (1u << 9));
}

}  // namespace

// Each target needs the one below it as well. __builtin_cpu_supports also asks whether the system
// saves the registers.
int64_t CpuTargets() {
  __builtin_cpu_init();
  int64_t targets = HWY_EMU128 | HWY_SCALAR;
  if (!__builtin_cpu_supports("ssse3")) return targets;
  targets |= HWY_SSSE3;
  if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul") ||
      !__builtin_cpu_supports("aes")) {
    return targets;
  }
  targets |= HWY_SSE4;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2") || !HasF16cAndLzcnt()) {
    return targets;
  }
  targets |= HWY_AVX2;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512vl") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512bw")) {
    return targets;
  }
  targets |= HWY_AVX3;
  if (!__builtin_cpu_supports("avx512vnni") || !__builtin_cpu_supports("vpclmulqdq") ||
      !__builtin_cpu_supports("avx512vbmi") || !__builtin_cpu_supports("avx512vbmi2") ||
      !HasVaes() || !__builtin_cpu_supports("avx512vpopcntdq") ||
      !__builtin_cpu_supports("avx512bitalg") || !__builtin_cpu_supports("gfni")) {
    return targets;
  }
  return targets | HWY_AVX3_DL;
}

#else

int64_t CpuTargets() { return HWY_STATIC_TARGET; }

#endif

}  // namespace msprobe::kernels

#if defined(MSPROBE_STATIC)

// The two functions of libhwy that HWY_DYNAMIC_DISPATCH calls.
namespace hwy {

int64_t SupportedTargets() {
  static const int64_t targets = msprobe::kernels::CpuTargets();
  return targets;
}

ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

}  // namespace hwy

#endif
