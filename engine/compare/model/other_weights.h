// The parameters and buffers with which the two runs began and which are not the same.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

struct OtherWeight {
  std::string name;                 // without the parts of wrappers: "layers.0.inv_freq"
  std::string_view target, golden;  // fingerprints
};

// Of the weights files of both dumps; only the first dump of a run has one. In the order of the
// target's file.
//
//   for (const OtherWeight& weight : OtherWeights(comparison)) Print("{} differs", weight.name);
std::vector<OtherWeight> OtherWeights(const Comparison& comparison);

}  // namespace msprobe::compare
