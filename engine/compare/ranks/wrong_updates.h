// A wrong update of the weights lies between two recorded steps: step 3 of both runs agrees, and
// step 4 begins with other parameters or buffers. weights.json of the steps shows it, so that the
// step is named and not the first layer that uses the weights.
//
//   JudgeSteps(results);
//   if (results[i].wrong_update_after >= 0) Print(results[i].first.why);
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/compare/explain/update_pattern.h"
#include "engine/compare/ranks/rank_result.h"

namespace msprobe::compare {

// Fills first, first_name and wrong_update_after of the results of the first step that begins with
// other weights, where the step before of the same rank agrees. Nothing happens to results whose
// dumps have no weights.json, and where rounding explains the weights. `results` are ordered by
// step.
void NameWrongUpdates(std::span<RankResult> results);

// What the results of several steps say together: steps that carry on the rounding of the step
// before (ForgiveCarriedRounding), then updates between steps. Every command that compares steps
// judges them by this, so that all name the same place.
void JudgeSteps(std::span<RankResult> results);

// Whether `later` begins with other weights only because of the rounding of `earlier`
// (CarriesRounding), by weights.json: where no call is recorded with its weights, as in compiled
// code of MindSpore.
bool FilesCarryRounding(const RankResult& earlier, const RankResult& later);

// Makes the update of the weights after the step the first divergence of the result.
void NameWrongUpdate(int32_t after_step, Message why, RankResult* result);

// All weights that both runs have in both steps. `bits`: any other fingerprint is wrong, else only
// what rounding does not explain; for weights that no optimizer moves, behind a step that is the
// same in all bits, always any other fingerprint.
std::vector<WeightUpdate> UpdatesBetween(const RankResult& earlier, const RankResult& later,
                                         bool bits);

}  // namespace msprobe::compare
