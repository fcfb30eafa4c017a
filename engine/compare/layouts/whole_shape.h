// The shape of a whole value of which both sides have parts only. What the ranks of both sides hold
// tells: the shapes of the parts, how many of them differ, which exchanges they are given to; never
// whether numbers fit.
//
//   const WholeShape whole = WholeOf(facts.Summarize(parts), other_facts.Summarize(other_parts),
//       {});
//   if (whole.known) layout = facts.Of(parts, {.whole = shapes.Of(whole.extents)});
#pragma once

#include <cstdint>
#include <vector>

#include "engine/compare/layouts/value_layout.h"

namespace msprobe::compare::layouts {

struct WholeShape {
  bool known = false;
  std::vector<int64_t> extents;
  bool ordered = true;  // false: nothing tells along which dimension the shards stand
  // The ranks of both sides hold as many parts of one shape: they are addends of one value, or the
  // same shards of it. Their sum is the same either way.
  bool summed = false;
};

struct OtherLayout {
  // The ranks of each side are divided in one way only: no group of them is smaller than the run.
  bool one_way = false;
  bool gradient = false;  // of which each rank may have an addend
};

WholeShape WholeOf(const HeldParts& target, const HeldParts& golden, const OtherLayout& layout);

}  // namespace msprobe::compare::layouts
