// What the two runs did differently, apart from numbers: calls and arguments that only one run has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// The row of a plain argument that only one side passes. An argument that one side passes by
// position and the other by name is passed by both. -1: there is none.
int32_t UnmatchedArgument(const Comparison& comparison, int32_t pair);

// The rows of the plain arguments (numbers, text) that differ: with another value, else the one
// that only one side passes. Empty: the call was made alike.
std::vector<int32_t> DifferingArguments(const Comparison& comparison, int32_t pair);

// "3 calls were made differently, the first is Functional.batch_norm.3.forward (net.py:24 in
// forward: ...): input.6 is 0.2 in the target, 0.1 in the golden"; "" when all arguments are equal.
Message DescribeDifferingArguments(const Comparison& comparison);

// "48 calls are only in the golden, the first is Torch.norm.0.forward (train.py:72 in <module>:
// ...)", for both sides; "" when all calls have a partner. When one run was killed, the calls that
// only the other has are not counted.
Message DescribeUnmatchedCalls(const Comparison& comparison);

}  // namespace msprobe::compare
