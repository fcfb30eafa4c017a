// Where the two runs make other calls on the way to a wrong value: the first call of the target whose
// results the golden has nowhere. The calls before it make what the golden makes, too.
//
//   const NewValue found = FirstNewValue(comparison, /*pair=*/7);   // which takes the wrong value
//   if (found.pair >= 0) Print("the call {}, for {}", found.pair, found.taker);
#pragma once

#include <cstdint>

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

struct NewValue {
  int32_t pair = -1;  // the call, an index into Comparison::pairs; -1: there is none
  // The call of both runs that takes a wrong value of it, and the row of that value.
  int32_t taker = -1, row = -1;
};

// `pair` is the first wrong call, in the forward pass. A value is the same when its content is
// (ContentIds), or when it agrees with its partner; what only moves such values (a transpose, a slice)
// makes no new one. None: level L0, or the target's way to the wrong value has no call of its own.
// Takes time for the calls before `pair`.
NewValue FirstNewValue(const Comparison& comparison, int32_t pair);

}  // namespace msprobe::compare
