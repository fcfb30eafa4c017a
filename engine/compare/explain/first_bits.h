// The first bits that differ, which rounding may explain: beside the first divergence they show
// where the two runs part.
#pragma once

#include <string>

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Fills comparison->first_bits. Measures, classes and the first divergence must be known.
void FindFirstBits(Comparison* comparison);

// "Functional.linear.3.forward, output.0: same statistics, other bits; train.py:12 ...; 14 calls
// within rounding lie between". "" when no bits differ, or those of the first divergence are the
// first.
std::string DescribeFirstBits(const Comparison& comparison);

}  // namespace msprobe::compare
