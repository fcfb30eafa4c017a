// What several explanations (explain.h) have in common: their beginning, and sentences about inputs
// and weights.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/messages/message.h"
#include "engine/compare/explain/classify.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// The call that made a wrong value was found by equal numbers (dataflow.h).
inline constexpr double kFlowConfidence = 0.9;

// What to do where compiled code makes a value.
Message AdviceToRunEagerly();

// An explanation with place and source line; the caller adds confidence and words.
FirstDivergence StartExplanation(const Comparison& comparison, int32_t pair, int32_t row);

// "its inputs are equal, but the call itself was made differently: input.1 is 2 in the target, 3 in
// the golden"
Message DescribeInputs(const Comparison& comparison, int32_t pair, const CallSummary& call);

// A parameter or buffer of the module in which the call `pair` runs, or of a module in it, with
// which the runs did not begin alike: "layers.0.inv_freq"; "" when there is none.
std::string OtherWeightInModule(const Comparison& comparison, int32_t pair);

// What to look at where a weight differs when the step begins: the initialisation only where other
// seeds or no equal weight allow it.
Message AdviceOnWeights(const Comparison& comparison);

// "it is compiled code in the target (torch.compile), in which no operation is recorded", of the
// call of such a module; "" of any other call.
Message DescribeCompiledModule(const Comparison& comparison, int32_t pair);

// Of the call of a Cell that a compiled graph handed over (IsOfCompiledGraph in one of the runs):
// "the error is in it, or in the code of mlp (Mlp) that leads to it"; "" of any other call.
Message DescribeCompiledCell(const Comparison& comparison, int32_t pair);

// What to do where only modules were recorded, to see the operation inside of `pair`.
Message AdviceToLookInside(const Comparison& comparison, int32_t pair);
// The same to see the operation that makes what enters `pair`.
Message AdviceToLookBefore(const Comparison& comparison, int32_t pair);

}  // namespace msprobe::compare
