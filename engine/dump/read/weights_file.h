// weights.json: the parameters and buffers with which one step of one rank began.
//
//   std::vector<StepWeight> weights;
//   MSPROBE_RETURN_IF_ERROR(ReadStepWeights("runs/a/step3/rank0", &weights));
#pragma once

#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/model/step_weight.h"
#include "engine/model/table.h"

namespace msprobe::dump {

// In the order of the file; nothing when there is no such file (dumps of other tools, "weights":
// "first_step"). A file that a kill cut short gives what it has.
Status ReadStepWeights(const std::string& folder, std::vector<StepWeight>* weights);

// "runs/a/step4/rank0" of "runs/a/step3/rank0"; "": the folder is not that of a step.
std::string FolderOfNextStep(const std::string& folder);

// With what the step of a dump began, and with what the next one began, if it is there. A joined
// dump has them itself. A file that cannot be read tells nothing.
std::vector<StepWeight> WeightsBefore(const Dump& dump);
std::vector<StepWeight> WeightsAfter(const Dump& dump);

}  // namespace msprobe::dump
