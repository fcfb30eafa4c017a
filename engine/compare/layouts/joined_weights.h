// The weights of all ranks as those of one process: what lies in weights.json of each rank.
//
//   std::vector<StepWeight> weights = JoinWeights(runs, of_ranks, of_golden);
//
// A weight that a rank has under another name gets the golden's. Weights of which the golden has
// none, and those whose parts do not make a whole, are left out.
#pragma once

#include <cstdint>
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

// Names and shapes of the weights of which both sides together tell the whole: what JoinWeights
// takes as the golden's where both sides have several ranks. `one_way`: see OtherLayout.
std::vector<StepWeight> WholeWeights(std::span<const RankRun> target,
                                     std::span<const std::vector<StepWeight>> of_target,
                                     std::span<const RankRun> golden,
                                     std::span<const std::vector<StepWeight>> of_golden,
                                     bool one_way);

// How many of the weights that the ranks of two runs have in common are divided in another way
// between them: other shapes that fill the same whole, or held by other ranks.
struct DividedWeights {
  int64_t all = 0, otherwise = 0;
};
// The dumps of the ranks: what lies beside them in weights.json. None where a rank has no such
// file.
DividedWeights CompareDivisions(std::span<const std::string> target,
                                std::span<const std::string> golden);

// Modules of which a rank holds pieces that do not stand side by side in the golden's weight: its
// share of the queries, of the keys and of the values in one matrix. The parts have the golden's
// elements, and are not the golden's in the order of any ranks: nothing then tells the order of
// what the module makes.
std::set<std::string> ReorderedModules(std::span<const RankRun> runs,
                                       std::span<const std::vector<StepWeight>> of_ranks,
                                       std::span<const StepWeight> of_golden);

}  // namespace msprobe::compare::layouts
