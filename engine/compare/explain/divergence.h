// The first wrong call of a comparison that was read from a file: a table of results has verdicts,
// and no content from which relations could be made (relations/).
//
//   FindFirstDivergence(&comparison);   // classified
//   Print(comparison.first.why);
//
// confidence = pair x inputs x jump x size x before, each 0 to 1:
//   pair    RecordPair::confidence: how sure it is that the two calls are partners
//   inputs  1 equal, 0.9 within rounding, 0.4 not recorded
//   jump    1 - 1/j, at least 0.1, when the inputs agree within rounding; j is output severity /
//           input severity, divided by 100 for operations that enlarge rounding by their nature
//   size    1 - 0.5/s; s is output severity / the roundings that are explained: an error that is
//           just larger than explained counts half
//   before  1 - 0.5 x the share of earlier calls that could not be judged or have no partner
// The confidence of a module is multiplied by 0.8 when it has recorded children and none of them
// shows the error: the cause is an operation inside it that was not recorded.
#pragma once

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// The pair of the first call with a wrong number, wherever that number comes from; -1: there is
// none. Classes must be filled.
int32_t FirstWrongCall(const Comparison& comparison);

// Fills comparison->first and runners_up (at most five). Measures and classes must be filled.
void FindFirstDivergence(Comparison* comparison);

}  // namespace msprobe::compare
