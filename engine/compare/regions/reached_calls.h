// Calls that a rewrite may contain: they differ in structure, or take what such calls made, or hold
// such calls.
//
//   const std::vector<char> reached = FindReachedCalls(comparison, FindOpenCalls(comparison), flows);
#pragma once

#include <vector>

#include "engine/compare/model/comparison.h"
#include "engine/compare/regions/open_calls.h"
#include "engine/compare/regions/value_flow.h"

namespace msprobe::compare {

// For each pair whether it is such a call. `flows` follow all open calls.
std::vector<char> FindReachedCalls(const Comparison& comparison, const OpenCalls& calls,
                                   const ValueFlows& flows);

}  // namespace msprobe::compare
