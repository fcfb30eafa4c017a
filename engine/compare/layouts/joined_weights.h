// The weights of all ranks as those of one process: what lies in weights.json of each rank.
//
//   std::vector<StepWeight> weights = JoinWeights(runs, of_ranks, of_golden);
//
// A weight that a rank has under another name gets the golden's. Weights of which the golden has none, and
// those whose parts do not make a whole, are left out.
#pragma once

#include <span>
#include <vector>

#include "engine/compare/layouts/joined_calls.h"
#include "engine/model/step_weight.h"

namespace msprobe::compare::layouts {

// `of_ranks`: of each run, in the order of `runs`.
std::vector<StepWeight> JoinWeights(std::span<const RankRun> runs,
                                    std::span<const std::vector<StepWeight>> of_ranks,
                                    std::span<const StepWeight> of_golden);

}  // namespace msprobe::compare::layouts
