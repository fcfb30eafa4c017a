// What one of the two runs did otherwise, apart from numbers.
#pragma once

#include <cstdint>
#include <string>

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// A plain argument that one side passes and the other does not, in whatever place: its row. -1:
// none.
int32_t UnmatchedArgument(const Comparison& comparison, int32_t pair);

// "3 calls were made differently, the first is Functional.batch_norm.3.forward (net.py:24 in
// forward: ...): input.6 is 0.2 in the target, 0.1 in the golden"; "" when none was.
std::string DescribeDifferingArguments(const Comparison& comparison);

// "48 calls are only in the golden, the first is Torch.norm.0.forward (train.py:72 in <module>:
// ...)", of both sides; "" when all calls have a partner. Not what a killed run did not get to.
std::string DescribeUnmatchedCalls(const Comparison& comparison);

}  // namespace msprobe::compare
