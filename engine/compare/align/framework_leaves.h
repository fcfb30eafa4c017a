// Pairs the tensors of calls of two frameworks, one of which may compute by several calls what the
// other computes by one.
//
//   target   MatMul(x, w) -> y     BiasAdd(y, b) -> z        golden   linear(x, w, b) -> z
//
// x, w, b and z have partners. y has none: linear never shows it. In the backward pass the
// gradients of x, w and b have partners; one framework lists them in the order of the arguments,
// another in the order in which they arrive, one of them transposes that of w. What belongs to what
// is told by the forward call and by shapes, never by the values of the two runs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/compare/align/framework_calls.h"
#include "engine/compare/align/leaf_links.h"

namespace msprobe::compare {

// Adds the pairs of the tensors of all calls in `results`, of their forward and backward records,
// to `links`. What a user's data mapping names keeps its partner, and calls whose values `mapping`
// pairs by their places (a file of the user) are left out.
void LinkFrameworkLeaves(const Dump& target, const Dump& golden, const NameMapping& mapping,
                         std::span<const SameResult> results, LeafLinks* links);

// Each call of the target with the calls of the golden that are parts of it, beside its partner.
std::vector<CallPart> GoldenParts(const Dump& target, const Dump& golden,
                                  std::span<const SameResult> results);

// Whether `whole` takes a tensor of a shape that `call` of the other side does not take: calls
// before `call` may be parts of what `whole` computes.
bool LeavesInputsOpen(const Dump& dump, uint32_t call, const Dump& other, uint32_t whole);

// Of calls in order those whose results lead to the last one, which is included.
std::vector<uint32_t> Makers(const Dump& dump, const std::vector<uint32_t>& calls);

}  // namespace msprobe::compare
