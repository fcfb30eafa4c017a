// The class of each call: is it where an error begins, or does it only pass one on?
#pragma once

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// What goes into a call (arguments, parameters) and what comes out, each summed over its rows.
struct SideSummary {
  bool differs = false, noise = false, equal = false;
  bool unknown = false;    // something recorded could not be judged
  double severity = 0;     // worst of the rows that have one
  int32_t worst_row = -1;  // of that row, index into Comparison::rows; the first that differs when
                           // none has a number
  bool any() const { return differs || noise || equal || unknown; }
};
struct CallSummary {
  SideSummary in, out;
  SideSummary arguments;   // of `in`: plain values only
  SideSummary parameters;  // of `in`: parameters of a module only
};
CallSummary SummarizeCall(const Comparison& comparison, int32_t pair);

// The module call of `direction` that gradients of parameters belong to; -1: none near by.
int32_t ModuleCallOf(const Comparison& comparison, int32_t gradients, Direction direction);
// The same for gradients of parameters, which are recorded without what they are made of: what goes
// into the module's backward call, which may be recorded after them.
CallSummary SummarizeGradients(const Comparison& comparison, int32_t gradients);

// Rules, first that fits:
//   one side only                                      unknown
//   a tensor that goes in differs                      inherited
//   an output differs, and
//     the forward call of this backward call diverged  inherited: it reads what forward saved
//     gradients of parameters, after any divergence    inherited: made elsewhere
//     gradients of parameters                          as what goes into the module's backward call
//     what goes in is not known                        unknown
//     all tensors that go in agree                     introduced
// (Plain arguments that differ are then the reason, not an excuse.)
//   something recorded could not be judged             unknown
//   else                                               noise if anything is noise, or equal
// Fills comparison->classes; measures must be there.
void ClassifyCalls(Comparison* comparison);

// Where nothing is wrong but that updates in place enlarged the rounding of their inputs, and no
// call passes it on: these rows and calls are noise (an optimizer divides a gradient that is zero
// but for rounding by its own size). With anything else wrong all stay as they are.
void ForgiveEnlargedRounding(Comparison* comparison);

}  // namespace msprobe::compare
