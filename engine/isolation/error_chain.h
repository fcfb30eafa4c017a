// The way of an error: from the call where it begins to another one, such as the loss.
//
//   MSPROBE_ASSIGN_OR_RETURN(const int32_t pair, FindCall(comparison, "loss"));
//   const ErrorChain chain = ChainTo(comparison, pair);
//   for (const ErrorHop& hop : chain.hops) Print("{}: {}", hop.name, hop.error.Shown());
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::isolation {

struct ErrorHop {
  int32_t pair = -1;        // index into Comparison::pairs
  std::string name;         // of the entry
  std::string source_line;  // "train.py:41 in forward: y = F.gelu(x)"; "" where not recorded
  Message error;            // of its worst result: "norm of output.0 is off by 4.8%"
  std::string from;  // the value by which the error came: "input.0"; "" at the first hop, and
                     // where the hop before is its forward call
};

struct ErrorChain {
  std::vector<ErrorHop> hops;  // the first one made the error, or is as far back as links lead
  bool from_first = false;     // the first hop is the first divergence
  Message note;                // what the chain does not show; empty
};

// The pair that `text` names (engine/model/named_calls.h). Errors: those of OneCallNamed.
Result<int32_t> FindCall(const compare::Comparison& comparison, std::string_view text);

// The shortest way by which the error of the first divergence came to `pair`, along values that
// differ: which output became which input is told by equal numbers (compare/explain/dataflow.h); a
// backward call also reads what its forward call saved.
ErrorChain ChainTo(const compare::Comparison& comparison, int32_t pair);

}  // namespace msprobe::isolation
