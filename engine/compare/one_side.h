// What only one of the two runs did.
#pragma once

#include <cstdint>
#include <string>

#include "engine/compare/comparison.h"

namespace msprobe {

// A plain argument that one side passes and the other does not, in whatever place: its row. -1:
// none.
int32_t ArgumentOfOneSide(const Comparison& comparison, int32_t pair);

// "48 calls are only in the golden, the first is Torch.norm.0.forward (train.py:72 in <module>:
// ...)", of both sides; "" when all calls have a partner. Not what a killed run did not get to.
std::string DescribeCallsOfOneSide(const Comparison& comparison);

}  // namespace msprobe
