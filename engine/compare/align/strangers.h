// Parts pairs of calls that the recorded values contradict. A call of equal name and place may be a
// new one: where the program now calls `fused_norm` for `norm`, and a new `norm` runs beside it,
// the golden's `norm` is the fused one, which takes and makes the same values.
//
//   PartStrangers(target, golden, target_calls, golden_calls, &partners);
//
// Only a pair without any common value is parted, and only where calls of other functions beside
// it, which have no partner, take and make what the partner took and made: one call, which becomes
// the partner, or two, of which it was split. So a run whose values all differ keeps its pairs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/compare/align/align.h"

namespace msprobe::compare {

// The spans hold record indices in execution order; `partners` has one element for each target
// record.
void PartStrangers(const Dump& target, const Dump& golden, std::span<const uint32_t> target_calls,
                   std::span<const uint32_t> golden_calls, std::vector<Partner>* partners);

}  // namespace msprobe::compare
