// What reports call a recorded value.
//
//   LeafPath(c, row);    // "input.1" of "Functional.linear.0.forward.input.1"
//   LeafLabel(c, row);   // "weight"; of the backward call's output.1: "the gradient of weight"
#pragma once

#include <string>
#include <string_view>

#include "engine/base/messages/message.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// "output.0", "input.5": the name of the row's leaf without the name of its call.
std::string_view LeafPath(const Comparison& comparison, int32_t row);
std::string_view LeafPath(const Leaf& leaf, const Record& record);
// The same for people: an argument of an API has the name of the function's parameter where that is
// known: "training", "tensors.1". A gradient has the name of what it is the gradient of, in dumps
// that list gradients in the order of the arguments.
Message LeafLabel(const Comparison& comparison, int32_t row);
// The same of a leaf of one dump. `forward`: of a leaf of a backward call the index of its forward
// call's record, else ignored; -1: not recorded.
Message LeafLabel(const Dump& dump, const Leaf& leaf, int32_t forward);

}  // namespace msprobe::compare
