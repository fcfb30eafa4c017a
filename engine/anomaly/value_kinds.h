// Which non-finite numbers a recorded value holds, from its counts or its statistics.
//
//   const ValueKinds kinds = KindsOf(leaf);
//   // "3 of 16 elements are NaN"
//   if (kinds.any()) Print("{}: {}", leaf.name, DescribeNonfinite(leaf).Shown());
//   KindsWord(kinds);                                                       // "NaN and Inf"
#pragma once

#include <string>
#include <string_view>

#include "engine/base/messages/message.h"
#include "engine/model/table.h"

namespace msprobe::anomaly {

struct ValueKinds {
  bool nan = false, pos_inf = false, neg_inf = false;

  bool infinite() const { return pos_inf || neg_inf; }
  bool any() const { return nan || infinite(); }
  void Add(const ValueKinds& other) {
    nan |= other.nan;
    pos_inf |= other.pos_inf;
    neg_inf |= other.neg_inf;
  }
};

// By the counts where they were recorded, else by Max and Min, else by Mean and Norm. A norm or
// mean that overflowed does not count where Max and Min are finite: then every element is finite.
ValueKinds KindsOf(const Leaf& leaf);

// "NaN", "Inf", "NaN and Inf", "".
Message KindsWord(const ValueKinds& kinds);

// How many of its elements are NaN and infinite, as far as the dump says it: "3 of 16 elements are
// NaN", "all 16 elements are Inf", "some of 16 elements are Inf"; of a plain value "the value is
// inf".
Message DescribeNonfinite(const Leaf& leaf);

}  // namespace msprobe::anomaly
