// In which dtypes PyTorch computes on this thread: the default dtype, and that of autocast on each
// kind of device where it is on.
//
//   const PrecisionPolicy now = PrecisionPolicy::Now();
//   if (now != at_start) entry.precision = now.Text();   // "float32, autocast cpu bfloat16"
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace msprobe::capture {

class PrecisionPolicy {
 public:
  // Reads some variables of the thread, in a few nanoseconds. Knows nothing of other frameworks.
  static PrecisionPolicy Now();

  bool operator==(const PrecisionPolicy&) const = default;
  // "" where nothing is known. Needs the GIL. Never leaves a Python error set.
  std::string Text() const;

 private:
  static constexpr int8_t kNone = -1;  // not known, or autocast is off
  int8_t default_dtype_ = kNone;       // as c10::ScalarType numbers them
  std::array<int8_t, 4> autocast_{kNone, kNone, kNone, kNone};
};

}  // namespace msprobe::capture
