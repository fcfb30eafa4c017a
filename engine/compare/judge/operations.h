// What the name of an operation tells about the rounding of its results; operations.yaml has what
// is known.
#pragma once

#include <string_view>

#include "engine/compare/judge/operation_facts.h"
#include "engine/compare/model/comparison.h"
#include "engine/compare/model/record_keys.h"
#include "engine/model/table.h"

namespace msprobe::compare {

// The table with which the comparison is made.
const OperationTable& OperationsOf(const Comparison& comparison);

// `api` is Record::api with any prefix: "Functional.dropout", "Module.drop.Dropout",
// "Tensor.normal_".
bool DrawsRandomNumbers(std::string_view api);
// empty, empty_like, ...: the result is memory that nobody has written yet.
bool ReturnsUninitialised(std::string_view api);
// linear, matmul, conv, attention, ...: sums of products.
bool IsContraction(const OperationTable& operations, std::string_view api);
// Differences, normalisations, exponentials, logarithms: a small relative error of the input
// becomes a large one of the result.
bool AmplifiesRounding(const OperationTable& operations, std::string_view api);
// Whether the call changes buffers that its results do not show: running_mean of batch_norm.
bool UpdatesBuffers(const OperationTable& operations, std::string_view api);

// Whether the call writes to its first argument: `add_`, `x += y`, `x[index] = y`.
bool WritesFirstArgument(const OperationTable& operations, std::string_view api);

// Whether operations were recorded, and not modules alone (level L0).
bool HasOperations(const Dump& dump);

// How many values the call sums to make one element of its outputs, as far as name and shapes tell:
// a matmul's inner dimension, the size of a reduction's input divided by that of its output; 0: not
// known.
double SummedTerms(const OperationTable& operations, const Dump& dump, const Record& record);

// Whether a leaf is a gradient that an optimizer's step takes, or a tensor of the state that it
// takes, which gradients of earlier steps have made.
bool IsGradientOfOptimizer(const Record& record, const Leaf& leaf);
bool IsStateOfOptimizer(const Record& record, const Leaf& leaf);
// Whether a leaf of an optimizer's entry says how the step is computed ("fused"), which changes no
// more than rounding.
bool IsImplementation(const Record& record, const Leaf& leaf);

// The size of the numbers that the call adds to make `output`: x - y may be tiny, but has the
// rounding of x and y. An output's error is divided by this size when it is larger than the output.
// The gradient of a bias whose backward call is not recorded, and one that an optimizer takes, have
// the size of the weight's gradient beside it. 0: not known.
double SummedMagnitude(const OperationTable& operations, const Dump& dump, const Record& record,
                       const Leaf& output);

}  // namespace msprobe::compare
