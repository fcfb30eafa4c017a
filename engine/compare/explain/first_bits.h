// The first bits that differ, which rounding may explain: beside the first divergence they show
// where the two runs part.
#pragma once

#include <string>

#include "engine/base/messages/message.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Fills comparison->first_bits. Measures, classes and the first divergence must be known.
void FindFirstBits(Comparison* comparison);

// "first different bits: Functional.linear.3.forward: output.0 has the same statistics, but other
// bits; train.py:12 ...; 14 calls are within rounding between it and the first divergence".
// "numbers" for "bits" where a dump has no fingerprints. "" when no bits differ, or those of the
// first divergence are the first.
Message DescribeFirstBits(const Comparison& comparison);

}  // namespace msprobe::compare
