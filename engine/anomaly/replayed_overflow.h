// Judges a call that overflowed and was executed again, on a device and as a reference: does the
// reference overflow too? A worker executes the call and tells what it found in one line.
//
//   ReplayedCall call{.name = "Torch.exp.0"};
//   call.forward.Add(0, ComputeStats(device), ComputeStats(reference));    // each output
//   MSPROBE_ASSIGN_OR_RETURN(ReplayedCall same, ReplayedCallFromLine(ToLine(call)));
//   Print("{} overflow", VerdictName(VerdictOf(same, same.forward)));      // "normal"
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/status.h"
#include "engine/kernels/stats.h"

namespace msprobe::anomaly {

enum class OverflowVerdict : uint8_t {
  kNormal,  // the reference overflows at the same output: the value is too large
  // Both give NaN: the operation has no value for these inputs, or for some of them (the square
  // root of a negative number). Infinities beside the NaN (the logarithm of 0) do not make it
  // normal.
  kUndefined,
  kAbnormal,         // one of the two overflows and the other does not: look at the operation
  kInputsNotFinite,  // the call got NaN or infinity: its output says nothing about it
  kNotReproduced,    // neither overflows in the replay
  kNotExecuted,
};
inline constexpr std::array<std::string_view, 6> kOverflowVerdictNames = {
    "normal", "undefined", "abnormal", "inputs not finite", "not reproduced", "not executed"};
std::string_view VerdictName(OverflowVerdict verdict);

// One direction of a call.
struct ReplayedDirection {
  int64_t outputs = 0;            // that both sides have
  std::string device, reference;  // "NaN", "Inf", "NaN and Inf", ""
  Message differs;                // "output.1: NaN on the device, finite in the reference"; empty

  // `place`: of the output among those of the call, from 0; some have no tensor.
  void Add(int64_t place, const kernels::Stats& on_device, const kernels::Stats& in_reference);
};

struct ReplayedCall {
  std::string name;  // "Torch.exp.0"
  Message why;       // why it was not executed; empty
  Message note;      // what else there is to say
  ReplayedDirection forward, backward;
};

// All but kInputsNotFinite.
OverflowVerdict VerdictOf(const ReplayedCall& call, const ReplayedDirection& direction);

std::string ToLine(const ReplayedCall& call);  // without an end of line
// Errors: kInvalidDump.
Result<ReplayedCall> ReplayedCallFromLine(std::string_view line);

}  // namespace msprobe::anomaly
