// The weights of all ranks as those of one process: what lies in weights.json of each rank.
//
//   std::vector<StepWeight> weights = JoinWeights(runs, of_ranks, of_golden);
//
// A weight that a rank has under another name gets the golden's. Weights of which the golden has none, and
// those whose parts do not make a whole, are left out.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/compare/layouts/joined_calls.h"
#include "engine/model/step_weight.h"

namespace msprobe::compare::layouts {

// `of_ranks`: of each run, in the order of `runs`.
std::vector<StepWeight> JoinWeights(std::span<const RankRun> runs,
                                    std::span<const std::vector<StepWeight>> of_ranks,
                                    std::span<const StepWeight> of_golden);

// Modules of which a rank holds pieces that do not stand side by side in the golden's weight: its share of
// the queries, of the keys and of the values in one matrix. The parts have the golden's elements, and are
// not the golden's in the order of any ranks: nothing then tells the order of what the module makes.
std::set<std::string> ReorderedModules(std::span<const RankRun> runs,
                                       std::span<const std::vector<StepWeight>> of_ranks,
                                       std::span<const StepWeight> of_golden);

}  // namespace msprobe::compare::layouts
