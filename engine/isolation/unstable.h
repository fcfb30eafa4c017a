// The first call that does not repeat: two runs of one program, compared by bits.
//
//   CompareOptions bits{.exactness = Exactness::kExact};
//   MSPROBE_ASSIGN_OR_RETURN(const Comparison c, Compare(std::move(second), std::move(first),
//       bits));
//   if (const std::optional<Unstable> found = FirstUnstable(c)) Print("{}", found->why.Shown());
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/base/messages/message.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::isolation {

struct Unstable {
  enum class Cause : uint8_t {
    kOperation,      // all inputs are bit-equal, an output is not
    kRandomNumbers,  // the same, and the operation draws random numbers
    kOutside,        // an input differs that no recorded call made: data, weights, other generators
    kArgument,       // a plain argument differs: the program passes another value
    kCalls,          // only one of the two runs makes this call
  };
  Cause cause = Cause::kOperation;
  int32_t pair = -1;  // index into Comparison::pairs
  int32_t row = -1;   // index into Comparison::rows; -1: the call as a whole
  std::string name;   // of the entry
  std::string module, source_line, caller_line;  // as FirstDivergence has them
  Message why;                                   // one sentence without a full stop
  Message advice;
};
Message CauseName(Unstable::Cause cause);  // "operation", "random numbers", ...

// nullopt: nothing differs. The comparison must have been made with Exactness::kExact; its order is
// that in which the calls ended, so an operation comes before the module that has it inside.
std::optional<Unstable> FirstUnstable(const compare::Comparison& comparison);

// Number of compared tensors of which the dumps have statistics and no bits (no fingerprint,
// checksum or file): a large tensor that a device has measured. Two elements of it may have changed
// places.
int64_t CountWithoutBits(const compare::Comparison& comparison);

}  // namespace msprobe::isolation
