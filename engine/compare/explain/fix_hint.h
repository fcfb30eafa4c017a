// What the target does otherwise than the golden at a divergence, where the dumps show it: an
// argument, a mode, a call or a dtype. It is a fact and no guess; where no fact is known there is
// no hint.
//
//   const FixHint hint = FixHintOf(comparison, comparison.first);
//   if (hint.kind != FixHint::Kind::kNone) Print(hint.Text());
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

struct FixHint {
  enum class Kind : uint8_t {
    kNone,
    kMode,      // a module is in train mode on one side only
    kArgument,  // a plain argument of the call, or a hyper-parameter of the optimizer
    kCall,      // a call that one side does not make, or another function in its place
    kDType,     // a tensor of the call has another dtype, and no tensor before it had
  };
  struct Change {
    Message what;            // "dim", "lr of group 1", "layers.1.dropout (Dropout)", "output.0"
    Message target, golden;  // "1", "eval", "Torch.relu.0.forward"; "": that side has none
  };
  Kind kind = Kind::kNone;
  std::vector<Change> changes;  // at most eight
  // "set dim to 2, as in the golden (the target has 1)"
  Message Text() const;
};
std::string_view FixKindName(FixHint::Kind kind);  // "argument"

// `divergence` is the first one or a runner-up.
FixHint FixHintOf(const Comparison& comparison, const FirstDivergence& divergence);

// The tensors of a call that have another dtype in each run, when no tensor before them has;
// "output.0 is torch.int32 in the target, torch.int64 in the golden", or "".
Message DescribeFirstDTypes(const Comparison& comparison, int32_t pair);

}  // namespace msprobe::compare
