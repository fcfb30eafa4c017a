// Tensors that are judged as if they were one: the parts of a batch, or the weights of three products
// that the other run has as one.
//
//   if (AgreeJoined(comparison, {whole}, {query, key, value})) Forgive();
#pragma once

#include <vector>

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

using Parts = std::vector<const Leaf*>;  // of one dump, in their order; never empty

// Whether minimum, maximum, mean and norm of all parts together agree. The first part of each side
// says which call and dtype decide about rounding. All parts need statistics, and both sides equally
// many elements.
bool AgreeJoined(const Comparison& comparison, const Parts& target, const Parts& golden);

}  // namespace msprobe::compare
