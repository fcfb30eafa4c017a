// Two checkpoints in, one Comparison out: one row for each parameter, under the golden's name.
//
//   MSPROBE_ASSIGN_OR_RETURN(Checkpoint target, Checkpoint::Open("new/model.safetensors"));
//   MSPROBE_ASSIGN_OR_RETURN(Checkpoint golden, Checkpoint::Open("old/pytorch_model.bin"));
//   const Comparison c = CompareCheckpoints(target, golden);
//   std::string text = CheckpointReport(c);           // or WriteTableCsv, JsonReport
//   std::string json = SimilarityJson(c);             // what config_check -c writes
#pragma once

#include <string>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/parameter_mapping.h"
#include "engine/compare/compare.h"

namespace msprobe::checkpoint {

// Pairs parameters by name. When all names of one side begin with a wrapper ("module.", "model.",
// "state_dict.") and those of the other do not, they are paired without it, and not_observed says
// so. `names` has the parameters that are called differently on purpose. A parameter without a
// partner has a row of its own. Each pair is read, compared element by element and freed: small
// pairs on one thread each, large ones one after the other on all threads. The row of a tensor that
// cannot be read is unknown. `first` is the worst parameter and its worst element. The note of a
// row that differs says in which order the golden's elements stand in it, if they do (reordered.h).
// not_observed also names parameters of which several ranks have different replicas.
compare::Comparison CompareCheckpoints(const Checkpoint& target, const Checkpoint& golden,
                                       const compare::CompareOptions& options = {},
                                       const ParameterMapping& names = {});

bool IsCheckpointComparison(const compare::Comparison& comparison);

// A report for a terminal: the parameters that differ, the worst first, and those of one side only.
std::string CheckpointReport(const compare::Comparison& comparison);

// {"name": {"l2": ..., "cos": ..., "numel": ..., "shape": [...]}, ...} for the model's parameters
// that both sides have, as msprobe 26 writes it. When shapes differ, the numbers are null and both
// shapes are given.
std::string SimilarityJson(const compare::Comparison& comparison);

}  // namespace msprobe::checkpoint
