// Which non-finite numbers the inputs and the outputs of a recorded call hold.
//
//   const CallKinds call = KindsOfCall(dump, dump.records[7]);
//   if (call.IsAnomaly()) Print("{} made {}", dump.records[7].name, KindsWord(call.made));
#pragma once

#include "engine/anomaly/value_kinds.h"
#include "engine/model/table.h"

namespace msprobe::anomaly {

struct CallKinds {
  // All inputs but those that tell nothing: memory that nobody has written, and the former content
  // of a tensor that the call overwrites.
  ValueKinds given;
  ValueKinds given_tensors;  // those of them that are tensors
  ValueKinds made;           // the outputs
  ValueKinds passing;        // gradients of parameters: sums of what other calls made
  bool reads_unwritten = false;

  // No input has NaN or infinity and an output has, or an output has NaN and no input has.
  bool IsAnomaly() const { return (made.nan && !given.nan) || (made.any() && !given.any()); }
};

CallKinds KindsOfCall(const Dump& dump, const Record& record);

// Whether nobody had written all of the memory of this value.
bool IsUnwritten(const Dump& dump, const Leaf& leaf);

// Whether the results of the call say nothing about its inputs: memory that nobody has written, or
// a value that the program asks for.
bool NeverAnAnomaly(const Record& record);

}  // namespace msprobe::anomaly
