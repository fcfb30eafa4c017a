// A shape is a part of a value. Programs may hold one tensor with and without dimensions of extent 1
// ([8, 1] and [8], keepdim=True and unsqueeze), and that is no difference as long as what follows is
// the same. Where [8, 1] * [8] makes [8, 8], it is one, and the error begins at the call that made
// the other shape.
//
//   JudgeShapeEffects(&comparison);   // measured, not yet classified
//   comparison.measures[row].reason;  // kShapeDiffers for [8, 1] beside [8]
#pragma once

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Rows of [8, 1] beside [8] become kDiffers with kShapeDiffers, where the shape has an effect: the
// arguments of a forward call whose results differ though nothing else that it takes does, and
// backwards the results and arguments of the calls that passed this shape on. Tensors of one element
// are left out, because a dimension more changes nothing in what is computed of them.
void JudgeShapeEffects(Comparison* comparison);

}  // namespace msprobe::compare
