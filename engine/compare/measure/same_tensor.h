// One tensor has one verdict, wherever it appears: as the result of a linear layer, as the output of
// the module that returns it, as an input of its readers.
#pragma once

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Rows whose two tensors have the same pair of digests (fingerprints, checksums) are the same pair
// of tensors. Where some of them are noise and others differ, all get the verdict of the call that
// made the tensor, which knows how many terms it sums: the first row that is a result of an API, or
// the gradient of a parameter. Without one, all differ. Results of calls that only move data
// (moved_data.h) keep their verdict, and what follows them is judged by it.
//
// The measures of all rows must be filled.
void GiveOneVerdictToEachTensor(Comparison* comparison);

}  // namespace msprobe::compare
