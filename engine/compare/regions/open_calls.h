// Calls that do not agree, and those of them that differ in structure: other operations, other
// tensors as arguments, another order.
//
//   const OpenCalls calls = FindOpenCalls(comparison);
//   if (calls.own[pair]) Look(pair);
#pragma once

#include <vector>

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

struct OpenCalls {
  // For each pair: whether a row of it does not agree, or it has no partner.
  std::vector<char> open;
  // For each pair that is open: whether the calls themselves differ.
  std::vector<char> own;
};

OpenCalls FindOpenCalls(const Comparison& comparison);

}  // namespace msprobe::compare
