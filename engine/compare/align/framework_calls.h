// Pairs the API calls of a MindSpore run with those of a PyTorch run.
//
// Names and call numbers say little between two frameworks: nn.ReLU is a Primitive in one and
// Functional.relu in the other, and what one computes by one call (linear) the other computes by
// several (MatMul, BiasAdd). So calls are paired inside the module in which they ran, between the
// modules that ran inside it, by what they compute (mindspore_apis.h) and by the shape of the
// result.
//
//   Cell.fc.Dense        Primitive.matmul.MatMul     [2, 16]
//                        Primitive.bias_add.BiasAdd  [2, 16]  <-+
//   Module.fc.Linear     Functional.linear           [2, 16]  --+ the same tensor
//
// MatMul is then a part of linear: its inputs are compared with those of linear. Values decide
// nothing, so a wrong value cannot hide a pair. Which call of a run made a tensor that another call
// of the same run takes is told by its content.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/compare/align/align.h"

namespace msprobe::compare {

// Calls that together compute what one call of the other side computes; in the order of their run.
// The last of them has the result.
struct SameResult {
  std::vector<uint32_t> target, golden;  // records; one of the two has one element
  // Whether the APIs compute the same, and so take the same arguments.
  bool same_operation = false;
};

// `partners` has the pairs of module calls; pairs of calls that are found are added to it: of a
// call that is a part of its partner with `part`. A golden call that is a part is in the result
// only.
std::vector<SameResult> PairFrameworkCalls(const Dump& target, const Dump& golden,
                                           const CompareOptions& options,
                                           std::vector<Partner>* partners);

}  // namespace msprobe::compare
