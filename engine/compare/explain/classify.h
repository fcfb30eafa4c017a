// The class of each call: does an error begin there, or does the call pass on an error of its
// inputs?
#pragma once

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// The rows of one side of a call, put together: of what goes in (arguments, parameters) or of what
// comes out. `differs`, `noise`, `equal`: there is a row with that verdict.
struct SideSummary {
  bool differs = false, noise = false, equal = false;
  bool unknown = false;    // there is a recorded value that could not be judged
  bool unwritten = false;  // there is memory that nobody has written
  double severity = 0;     // the largest one
  // The row with the largest severity, index into Comparison::rows. When no row has a number: the
  // first row that differs. -1: there is none.
  int32_t worst_row = -1;
  bool any() const { return differs || noise || equal || unknown || unwritten; }
};
// Whether one of the two sides of a row, an index into Comparison::rows, is a number, flag or text:
// where the other side is a tensor, too, so that the sides may be swapped.
bool IsPlain(const Comparison& comparison, int32_t row);

struct CallSummary {
  SideSummary in, out;
  SideSummary arguments;   // plain values (numbers, text) that go in; they are not part of `in`
  SideSummary parameters;  // the parameters of a module, which are part of `in`
};
CallSummary SummarizeCall(const Comparison& comparison, int32_t pair);

// The call of `direction` of the module whose parameters' gradients the pair `gradients` holds; -1:
// there is none near that pair.
int32_t ModuleCallOf(const Comparison& comparison, int32_t gradients, Direction direction);
// The summary of a pair of parameters' gradients. They are recorded without inputs: `in` is taken
// from the module's backward call, which may be recorded after them.
CallSummary SummarizeGradients(const Comparison& comparison, int32_t gradients);

// Fills comparison->classes; measures must be filled. The first rule that fits decides:
//   one side only                                      unknown
//   a tensor that goes in differs                      inherited
//   an output differs, and
//     the forward call of this backward call diverged  inherited: it reads what forward saved
//     gradients of parameters, after any divergence    inherited: made elsewhere
//     gradients of parameters                          as what goes into the module's backward call
//     what goes in is not known                        unknown
//     all tensors that go in agree                     introduced
//   a plain argument differs, an output is noise       introduced, although it is only noise.
//                                                      Not where rounding before the call explains
//                                                      the argument (x * loss.item())
//   something recorded could not be judged             unknown
//   else                                               noise if anything is noise, or equal
// Plain arguments that differ make a call `introduced` and not `inherited`: they are the cause.
void ClassifyCalls(Comparison* comparison);

}  // namespace msprobe::compare
