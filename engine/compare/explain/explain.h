// Turns a place where an error begins into an answer for people: the call, the confidence, one
// sentence that says why, and what to look at next.
#pragma once

#include <string>

#include "engine/base/messages/message.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// The call's inputs agree, or are not recorded, and an output differs.
FirstDivergence ExplainIntroduced(const Comparison& comparison, int32_t pair);

// An input of `pair` is wrong, although no recorded call before it is.
FirstDivergence ExplainInherited(const Comparison& comparison, int32_t pair);

// How a call without a partner is connected with the first wrong number.
enum class Tie {
  kOutput,  // the wrong number is an output of that call
  kLeads,   // other calls without a partner make it of an output of that call
  kPlace,   // that call runs just before the wrong number, or inside the same module
};
// `pair` is the first call with a wrong number; `row` is its wrong row, -1: the call as a whole.
FirstDivergence ExplainUnmatched(const Comparison& comparison, int32_t unmatched, int32_t pair,
                                 int32_t row, Tie tie);

// Why a call of both runs drew other random numbers. Dumps of ours have the state of the generator
// at the beginning of each call that may draw.
struct RandomCause {
  Message why;     // which earlier call drew, or what else is known; "" when nothing is
  Message advice;  // what to do; "": the call draws no numbers, or both runs drew the same ones
};
RandomCause CauseOfOtherDraw(const Comparison& comparison, int32_t pair);

}  // namespace msprobe::compare
