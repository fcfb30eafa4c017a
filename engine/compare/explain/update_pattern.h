// Which parameters an update changed otherwise, and what they have in common: "5 of 10 parameters
// moved differently: all those with 1 dimension and no others (a.bias, norm.weight and 3 more); the
// golden does not move them".
//
//   std::vector<WeightUpdate> updates;                // all parameters, the right ones included
//   Message text = DescribeWrongUpdates(updates);     // no text: none is wrong
#pragma once

#include <span>
#include <string>

#include "engine/base/messages/message.h"
#include "engine/compare/judge/update_agreement.h"

namespace msprobe::compare {

// One parameter or buffer before and behind an update, in both runs.
struct WeightUpdate {
  std::string name;         // "layers.3.fc.bias"
  int dimensions = -1;      // -1: not known
  bool trained = true;      // false: a buffer, or a parameter without gradient
  bool by_chance = false;   // its gradient is zero by mathematics (zero_gradients.h)
  bool wrong = false;       // equal before the update, other behind it
  BothSides before, after;  // norms; NaN: not known
  double epsilon = 0;       // one rounding of a number of 1 in its dtype; 0: not known
  // Maximum and minimum, before and behind the update.
  BothSides max_before = kNotKnown, max_after = kNotKnown;
  BothSides min_before = kNotKnown, min_after = kNotKnown;

  static constexpr BothSides kNotKnown{NAN, NAN};
};

// "the target moves all weights 1.1 times as far as the golden, as another learning rate does"; ""
// for kNone.
Message DescribeFault(const UpdateFault& fault);

// What is common is said only where it holds for every wrong parameter and for no right one.
Message DescribeWrongUpdates(std::span<const WeightUpdate> updates);

}  // namespace msprobe::compare
