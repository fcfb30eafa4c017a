// Weights that one run has in one piece and the other in several: the product for queries, keys and
// values, or for the two halves of a gated layer. Entries of optimizers have them under other names.
//
//   if (JoinWeights(&comparison)) ClassifyCalls(&comparison);   // measured and judged
#pragma once

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// In pairs of optimizers' entries, tensors that only one side has (or the other has as null) are put
// together when their parameters lie in one module, have the same last name and shapes that differ
// in the first extent, and that extent adds up to the same on both sides. If the wholes agree, by
// minimum, maximum, mean and norm, their rows become unknown with Reason::kOtherParts. The same of
// parameters and their gradients in the entries of modules that lie beside each other in one module.
// A weight, gradient or state whose transpose the other run has, with the same statistics, becomes
// noise with Reason::kTransposed. Returns whether there were any.
bool JoinWeights(Comparison* comparison);

}  // namespace msprobe::compare
