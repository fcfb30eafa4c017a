// Finds in which dtype the noise of each row was made, and judges the row by that dtype.
//
// Rounding stays as large as it was made: values that were computed in bfloat16 are 0.5 roundings
// of bfloat16 apart, and 30,000 roundings of float32 after a cast.
//
//   h = layer(x)               bfloat16   noise of bfloat16
//   logits = h.float()         float32    judged by bfloat16: what goes in has its noise
//   p = softmax(logits)        float32    the same
//   mask = causal(n).float()   float32    judged by float32: nothing of bfloat16 goes in
//
// Tensors are followed from the call that returns them to the calls that take them by their
// fingerprints (dataflow.h says why that works). What cannot be followed, such as a gradient that
// autograd added up, has the coarsest noise that any row before it had. Values that are equal bit
// for bit have no noise.
#pragma once

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Fills comparison->noise_dtypes, and judges the rows again for which it is coarser than their own
// dtype. Also fills coarse_row and coarse_dtype. Measures must be filled. Takes no time for
// comparisons in which all differing floats have one dtype.
void JudgeByNoiseDType(Comparison* comparison);

}  // namespace msprobe::compare
