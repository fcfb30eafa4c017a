// The verdict of a comparison by relations between values: where the runs first differ.
#pragma once

#include <functional>

#include "engine/compare/model/comparison.h"
#include "engine/compare/model/proofs.h"
#include "engine/compare/relations/carried.h"
#include "engine/compare/relations/left_gradients.h"
#include "engine/compare/relations/values/graph.h"

namespace msprobe::compare::relations {

using ProofLook = std::function<void(const Graph& target, const Graph& golden, Proofs* proofs)>;

// Sets the verdicts of rows, the classes of calls and the first divergence of a comparison whose
// rows were aligned and measured. `carried`: what the step before left to this one, then what this
// one leaves to the next. `look`: called with what was proven, before rows are judged by it; then
// it is kept in Decided::proofs. Empty: no proofs are kept.
void Decide(const LeftGradients& left, Carried* carried, const ProofLook& look,
            Comparison* comparison);

}  // namespace msprobe::compare::relations
