// One batch in another number of parts: one run calls a module with eight texts, the other twice with
// four. The calls of both sides are put in groups with equally many elements, and the tensors of each
// group are judged as if their parts were joined: by minimum, maximum, mean and norm of the whole.
//
//   if (JoinBatchParts(&comparison)) ClassifyCalls(&comparison);   // measured and judged
#pragma once

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Calls are in a group when they are of one module or operation at the same place in its module, in
// one direction, and their tensors differ in the extent of one dimension only. Tensors that are no
// parts (weights, a mask of positions) must be alike in the whole group. Of the gradients of
// parameters, which add up from part to part, the last ones of both sides are a group.
//
// Rows of tensors that agree become unknown with Reason::kOtherParts; calls of which all tensors
// agree are marked in comparison->rewritten. Rows of tensors that disagree get that reason, too, and
// still differ. Returns whether any call was marked.
bool JoinBatchParts(Comparison* comparison);

}  // namespace msprobe::compare
