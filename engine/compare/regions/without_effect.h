// Gradients that differ and change nothing: a module returns a value and uses it inside, too, and
// one of the two runs takes another way out of it. What a hook sees of the gradient of the returned
// value then differs, although all gradients that leave the module agree.
//
//   if (ForgiveWithoutEffect(&comparison)) ClassifyCalls(&comparison);   // measured and judged
#pragma once

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Where nothing differs but gradients that backward calls take, and all tensors agree that these
// calls return, the rows of these gradients become unknown with Reason::kWithoutEffect. Where anything
// else differs, every wrong gradient may be the reason, and nothing is changed. Returns whether any
// row was changed.
bool ForgiveWithoutEffect(Comparison* comparison);

}  // namespace msprobe::compare
