// The line in which a worker tells what it found for one call.
//
//   const CheckedCall call{.name = "Tensor.add.0", .forward = Verdict::kPass};
//   const std::string line = ToLine(call);
//   MSPROBE_ASSIGN_OR_RETURN(CheckedCall same, CheckedCallFromLine(line));
#pragma once

#include <string>
#include <string_view>

#include "engine/accuracy/check_files.h"
#include "engine/base/status.h"

namespace msprobe::accuracy {

// The message of a call whose recorded data are missing or damaged begins with this.
inline constexpr std::string_view kUnreadable = "its data cannot be read: ";

std::string ToLine(const CheckedCall& call);  // without an end of line
// Errors: kInvalidDump.
Result<CheckedCall> CheckedCallFromLine(std::string_view line);

}  // namespace msprobe::accuracy
