// Sets the floating-point mode that the kernels need, and restores the caller's mode.
#pragma once

#if defined(__SSE2__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace msprobe::kernels {

// While an object of this class lives: round to nearest, denormals kept, no traps. A training
// script may have set denormals to be flushed (torch.set_flush_denormal) or traps; the destructor
// restores exactly the former mode. Costs a few ns when the mode is right already.
class FloatEnvironment {
 public:
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

#if defined(__SSE2__)
  FloatEnvironment() : saved_(_mm_getcsr()) {
    if ((saved_ & ~kFlags) != kDefault) _mm_setcsr(kDefault);
  }
  ~FloatEnvironment() {
    if ((saved_ & ~kFlags) != kDefault) _mm_setcsr(saved_);
  }

 private:
  static constexpr unsigned kFlags = 0x3f;      // the sticky exception flags
  static constexpr unsigned kDefault = 0x1f80;  // all exceptions masked, nearest, no FTZ, no DAZ
  unsigned saved_;
#else
  FloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~FloatEnvironment() { std::fesetenv(&saved_); }

 private:
  std::fenv_t saved_;
#endif
};

}  // namespace msprobe::kernels
