// The verdict of a comparison by relations between values: where the runs first differ.
#pragma once

#include "engine/compare/model/comparison.h"
#include "engine/compare/relations/carried.h"
#include "engine/compare/relations/left_gradients.h"

namespace msprobe::compare::relations {

// Sets the verdicts of rows, the classes of calls and the first divergence of a comparison whose rows
// were aligned and measured. `carried`: what the step before left to this one, then what this one
// leaves to the next. `keep_proofs`: what relates each value is kept, too.
void Decide(const LeftGradients& left, Carried* carried, bool keep_proofs, Comparison* comparison);

}  // namespace msprobe::compare::relations
