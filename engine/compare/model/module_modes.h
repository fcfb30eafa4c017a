// Modules that one run calls in train mode and the other in eval mode: dropout that was left on.
// Dumps of ours alone have the mode of a module's call.
//
//   DescribeMode(c, pair);   // "layers.1.dropout (Dropout) is in train mode in the target, in eval
//                            // mode in the golden"
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/messages/message.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// A module that one run calls in train mode and the other in eval mode.
struct OtherMode {
  std::string module;  // "layers.1.dropout (Dropout)"; "": the mode is the same, or not known
  bool target_trains = false;
};
// The module that `pair` calls; of an API the innermost module around it.
OtherMode OtherModeAt(const Comparison& comparison, int32_t pair);
// The same as a sentence; "" when the mode is the same on both sides, or not known.
Message DescribeMode(const Comparison& comparison, int32_t pair);

// The first module with another mode, and how many more there are; "" when there is none.
Message DescribeModes(const Comparison& comparison);

}  // namespace msprobe::compare
