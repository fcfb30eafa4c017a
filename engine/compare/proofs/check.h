// Checks what relations/ proved: each step is replayed from what was recorded and from the steps
// before it, by a computation of its own. What constructors share with it are the graph of a run,
// and the readers of statistics and sketches.
//
//   CheckProofs(comparison, target, golden, before, proofs);
//   proofs->refused;   // empty: all steps hold
#pragma once

#include "engine/compare/model/comparison.h"
#include "engine/compare/model/proofs.h"
#include "engine/compare/relations/carried.h"
#include "engine/compare/relations/values/graph.h"

namespace msprobe::compare {

// Writes Proofs::refused, at most 100 steps. The rows of the comparison must have the verdicts with
// which it was decided; `before`: what the step before left.
//
// It is as strict as the constructors on measured errors, contents, masks, shapes and the order of
// steps; how far rounding may grow it checks against a simpler law, which allows no less than the
// model of error.
void CheckProofs(const Comparison& comparison, const relations::Graph& target,
                 const relations::Graph& golden, const relations::Carried& before,
                 relations::Proofs* proofs);

}  // namespace msprobe::compare
