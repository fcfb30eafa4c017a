// Calls that two runs make under different precision policies: autocast that was left out around
// one block, another dtype of it, a default dtype that stayed. Dumps of ours say the policy of each
// call (model/precision_text.h); of others nothing is known.
//
//   const Policies policies = ComparePolicies(comparison);
//   DescribePolicies(comparison, policies.first);
//   // "autocast is off in the target, on in the golden (cpu bfloat16)"
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/messages/message.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

struct Policies {
  enum class Kind : uint8_t {
    kUnknown,  // a dump does not say
    kSame,     // each call has the policy of its partner
    // one run has another policy as a whole: it has no autocast, or always the same other one
    kWhole,
    // the policy of some calls is another one, and that of the others of their kind is not
    kInPlaces,
  };
  Kind kind = Kind::kUnknown;
  int32_t first = -1;  // the first pair with other policies and a result of another dtype; -1: none
};
Policies ComparePolicies(const Comparison& comparison);

// What the policies of a pair differ in; "": in nothing, a dump does not say, or its results have
// the same dtypes.
Message DescribePolicies(const Comparison& comparison, int32_t pair);

}  // namespace msprobe::compare
