// The verdict of a comparison by relations between values: where the runs first differ.
#pragma once

#include "engine/compare/model/comparison.h"

namespace msprobe::compare::relations {

// Sets the verdicts of rows, the classes of calls and the first divergence of a comparison whose rows
// were aligned and measured.
void Decide(Comparison* comparison);

}  // namespace msprobe::compare::relations
