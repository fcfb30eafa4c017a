// Two checkpoints in, one Comparison out: a row a parameter, in the golden's names.
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

// Parameters are paired by name; where one side wraps its names ("module.", "model.",
// "state_dict.") and the other does not, without the wrapper, which is said in not_observed;
// `names` says which are called differently on purpose. The others stand in rows of their own. Each
// pair is read, compared by element and let go: small ones one a thread, large ones one after the
// other. A tensor that cannot be read costs its own row. `first` is the worst parameter and its
// worst element.
// What several ranks should hold alike and do not is said in not_observed.
compare::Comparison CompareCheckpoints(const Checkpoint& target, const Checkpoint& golden,
                                       const compare::CompareOptions& options = {},
                                       const ParameterMapping& names = {});

bool IsCheckpointComparison(const compare::Comparison& comparison);

// For a terminal: what differs, the worst first, and what only one side has.
std::string CheckpointReport(const compare::Comparison& comparison);

// {"name": {"l2": ..., "cos": ..., "numel": ..., "shape": [...]}, ...} of the model's parameters
// that both have; null where shapes differ, and both shapes then, as msprobe 26 writes it.
std::string SimilarityJson(const compare::Comparison& comparison);

}  // namespace msprobe::checkpoint
