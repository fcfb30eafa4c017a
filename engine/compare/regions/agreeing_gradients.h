// Whether a step of two runs ends alike: all that computes a gradient shows in the gradients that the
// optimizers take.
//
//   if (GradientsAgree(comparison)) ForgiveWhatHadNoEffect();   // measured and judged
#pragma once

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Whether both runs took gradients in this step and all of them agree, in one piece or in several
// (joined_weights.h, batch_parts.h), or are apart by no more than a few times what the rounding of
// one call explains. The gradients are those that the optimizers take; at level L0,
// which records no optimizer, those of the parameters of all modules. False: one differs, or none
// was recorded.
bool GradientsAgree(const Comparison& comparison);

}  // namespace msprobe::compare
