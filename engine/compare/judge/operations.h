// What the name of an operation tells about its numbers.
#pragma once

#include <string_view>

#include "engine/model/table.h"

namespace msprobe::compare {

// By Record::api, of any prefix: "Functional.dropout", "Module.drop.Dropout", "Tensor.normal_".
bool DrawsRandomNumbers(std::string_view api);
bool ReturnsUninitialised(
    std::string_view api);                 // empty, empty_like, ...: memory that nobody wrote
bool IsContraction(std::string_view api);  // sums of products: linear, matmul, conv, attention, ...
// Enlarges the relative error of its input by far, by its nature: differences, normalisations,
// exponentials, logarithms.
bool AmplifiesRounding(std::string_view api);
// Changes its first argument, as the arithmetic of optimizers does.
bool UpdatesInPlace(std::string_view api);

// Values summed into one element of the call's outputs, as far as name and shapes tell: a matmul's
// inner dimension, a reduction's ratio of input to output; 0 when they do not.
double SummedTerms(const Dump& dump, const Record& record);

// Size of what was added up to make `output`, where the call tells: x - y may be tiny, its rounding
// is that of x and y. The scale that an output's error is to be held against is at least this. 0:
// the output's own scale.
double SummedMagnitude(const Dump& dump, const Record& record, const Leaf& output);

}  // namespace msprobe::compare
