// What several explanations (explain.h) have in common: their beginning, and sentences about inputs and weights.
#pragma once

#include <string>
#include <string_view>

#include "engine/compare/explain/classify.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// The call that made a wrong value was found by equal numbers (dataflow.h).
inline constexpr double kFlowConfidence = 0.9;

inline constexpr std::string_view kCompareCheckpoints =
    "compare the checkpoints, the initialisation and its seed";

// An explanation with place and source line; the caller adds confidence and words.
FirstDivergence StartExplanation(const Comparison& comparison, int32_t pair, int32_t row);

// "its inputs are equal, but the call itself was made differently: input.1 is 2 in the target, 3 in the golden"
std::string DescribeInputs(const Comparison& comparison, int32_t pair, const CallSummary& call);

// A parameter or buffer of the module in which the call `pair` runs, or of a module in it, with which
// the runs did not begin alike: "layers.0.inv_freq"; "" when there is none.
std::string OtherWeightInModule(const Comparison& comparison, int32_t pair);

}  // namespace msprobe::compare
