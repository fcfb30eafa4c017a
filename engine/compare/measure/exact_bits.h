// Verdicts by bits. Two runs of one program in one environment make the same bits: then rounding
// explains nothing, and the smallest difference is a finding.
//
//   comparison.exact = WhyBitsDecide(options, comparison);   // "" where rounding is allowed
//   if (!comparison.exact.empty()) JudgeByBits(&comparison);
#pragma once

#include <string>

#include "engine/base/messages/message.h"
#include "engine/compare/model/compare_options.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Why bits decide, a clause without a full stop; "" when rounding is allowed. With Exactness::kAuto
// bits decide when both dumps say the same environment (versions, device, threads, settings) and
// the runs make the same calls, operations among them, with values of the same dtypes, shapes and
// strides. Measures must be filled.
Message WhyBitsDecide(const CompareOptions& options, const Comparison& comparison);

// Rows within rounding differ.
void JudgeByBits(Comparison* comparison);

}  // namespace msprobe::compare
