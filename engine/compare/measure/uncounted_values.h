// Values that differ and do not count, because the results of their call agree: memory that the
// call overwrites, and arguments that the two runs pass in another form.
#pragma once

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Memory that a call overwrites is not its input: the destination of scatter_ or bernoulli_, x in
// `x[index] = y`, the argument `out`. What lies there before the call may be memory that nobody
// wrote, which differs from run to run.
//
// Rows that hold the old content of a destination become unknown with Reason::kOverwritten, where
// all tensors that the call returns are equal or within rounding. Where one differs, the old
// content may be the cause, and its rows keep their verdicts. `x[index] = y` returns nothing: x
// behind the call does not count either where x differed before it.
//
// The measures of all rows must be filled.
void ForgiveOverwritten(Comparison* comparison);

// What calls leave in arguments and buffers is recorded since msprobe 27. Where one dump has such
// values and the other has none at all, their rows get Reason::kOneRecorded, which does not count.
void ForgiveUnrecordedChanges(Comparison* comparison);

// One argument may be written in two ways: the size -1 of a reshape is the one that is left, and
// dimension -1 of four is dimension 3. Plain arguments of a forward call that differ become unknown
// with Reason::kOtherForm where the call only gives a tensor another shape (reshape, flatten,
// expand, ...) and tensors of equal shapes go in and come out; and where the argument is the same
// dimension, counted from the other end, and the results agree.
void ForgiveEqualArguments(Comparison* comparison);

// A fused step of an optimizer, and one that goes through the parameters in a loop, round
// otherwise. Rows that say how a step is computed, and differ, get Reason::kOtherForm.
void ForgiveImplementations(Comparison* comparison);

// A mask may be a tensor of bool in one run and of float32 in the other, or None and a flag beside
// it; a module may return its attention weights, or None for them.
//
// Where the results of a forward call agree that both runs have as tensors, these rows become
// unknown with Reason::kOtherForm: arguments that are tensors of other kinds or shapes, or a tensor
// in one run and None in the other; flags beside them; results that one run has as None.
void ForgiveOtherForms(Comparison* comparison);

// MindSpore and PyTorch pass other plain arguments for one thing (axis=-1 and dim=-1), and each
// records values that the other has not: moving_mean, the result of MatMul inside linear.
//
// In a comparison of the two, rows of one side in a pair of calls become unknown with
// Reason::kOneFramework; plain arguments that differ become unknown with Reason::kOtherForm where
// the results of the call agree.
void ForgiveOtherFramework(Comparison* comparison);

}  // namespace msprobe::compare
