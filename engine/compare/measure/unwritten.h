// Values in memory that nobody has written: torch.empty and its like return it, and its content is
// another in each run.
//
//   buffer = torch.empty(4, 8)     row 0 of the buffer is written, the rest is not
//   buffer[0].copy_(x)             equal
//   view = buffer[:2]              unknown, not counted against a run: a part was not written
//   total = buffer.sum()           differs: the call reads memory that nobody wrote
#pragma once

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Makes rows of other bits unknown (Reason::kUninitialised) when both dumps say that nobody had
// written all of their memory, and when a call only moves elements of such rows. Goes through the
// calls in execution order up to the first one that differs for another reason: what lies in a
// buffer after that may be wrong data. Measures must be filled, ForgiveOverwritten must have run.
void ForgiveUnwritten(Comparison* comparison);

}  // namespace msprobe::compare
