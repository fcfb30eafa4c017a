// How an explanation begins, wherever the error is found.
#pragma once

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// The wrong value is followed back through equal numbers, which are hardly a coincidence.
inline constexpr double kFlowConfidence = 0.9;

// The place and its source line; confidence and words are to follow.
FirstDivergence StartExplanation(const Comparison& comparison, int32_t pair, int32_t row);

}  // namespace msprobe::compare
