// Gradients that are zero by mathematics: of a bias before a normalisation, of the bias of keys
// under a softmax. What is recorded of them is what rounding left of a sum whose terms are as large
// as those of the weight beside it, and so its directions are chance. An optimizer makes the same
// of them: Adam divides each by its own size and moves such a weight by its whole rate, up or down.
//
//   const RecordPair& step = comparison.pairs[7];   // of an optimizer
//   const bool by_chance = IsZeroGradient(comparison, step, step.first_row);
#pragma once

#include <cstdint>

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Whether a row of a pair of calls, a module's gradients of parameters or the step of an optimizer,
// is such a gradient in both runs, with other bits. False for one that is zero in all its bits: it
// belongs to a weight that nothing uses.
bool IsZeroGradient(const Comparison& comparison, const RecordPair& pair, uint32_t row);

}  // namespace msprobe::compare
