// Calls that differ in structure and compute the same: one program calls
// scaled_dot_product_attention where the other multiplies, masks and normalises.
//
// A call is part of a rewrite when it has no partner, or one that it does not correspond to, or
// takes values of such calls; and every value that it makes ends well:
// - the calls that take the value agree there with their partners, or
// - they are parts of the rewrite themselves, or
// - no recorded call takes the value, and the other run has it, too, or
// - it is a loss or a partial gradient, and all gradients agree that the optimizer takes.
// Where something is wrong in spite of that, the rules are stricter: results of calls of both runs
// that no recorded call takes, integers with other bits, and forward calls in whose backward call
// the difference enters end badly.
// A call of both runs whose inputs agree and whose output does not is never part of a rewrite, and
// neither is what it leads to.
//
//   if (ForgiveRewrites(&comparison)) ClassifyCalls(&comparison);   // measured and classified
#pragma once

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Fills comparison->rewritten; rows of rewritten calls that differ become unknown with
// Reason::kRewritten. Returns whether any call is part of a rewrite. Nothing is rewritten between
// two frameworks, whose calls differ everywhere (framework_calls.h pairs them).
bool ForgiveRewrites(Comparison* comparison);

}  // namespace msprobe::compare
