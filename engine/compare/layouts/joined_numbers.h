// The numbers of a whole value, from those of its parts: statistics and sketches add up.
//
//   JoinedNumbers numbers = JoinNumbers(layout, parts, runs, golden_leaf.shape, /*factor=*/1);
//   Print(numbers.norm, numbers.mean);
//
// Of shards the largest, the smallest, the mean, the norm and the counts are known; of sums over
// ranks the mean. Sketches (kernels/sketch.h) are linear: of shards of dimension d that begin at
// index o each of their numbers is turned by the phase of o. What of a sketch cannot be known says
// so.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/compare/layouts/value_layout.h"

namespace msprobe::compare::layouts {

struct JoinedNumbers {
  bool known = false;  // false: some part has no numbers
  double max = 0, min = 0, mean = 0, norm = 0;
  ElementCounts counts;
  LeafRest rest;         // extremes 0: there are none
  JoinedLeaf joined;     // without leaf and how
  uint64_t content = 0;  // a hash of the contents of the parts and of how they lie
};

// `factor`: the whole is divided by it. `whole`: its shape.
JoinedNumbers JoinNumbers(const ValueLayout& layout, std::span<const ValuePart> parts,
                          std::span<const RankRun> runs, Shape whole, double factor);

}  // namespace msprobe::compare::layouts
