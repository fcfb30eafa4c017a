// Judges plain arguments that are dtypes: softmax(x, dtype=torch.bfloat16) for torch.float32.
//
// A run in bfloat16 passes bfloat16 where a run in float32 passes float32, and nothing is wrong
// with the call. So another float dtype as an argument is unknown where the runs have computed in
// two float dtypes before, or take tensors of two dtypes in the same call. Where all tensors have
// had the same dtype until then, the call is made differently.
#pragma once

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Measures must be filled.
void JudgeDTypeArguments(Comparison* comparison);

}  // namespace msprobe::compare
