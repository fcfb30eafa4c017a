// Whether two runs of one program computed the same bits, and the first value that differs.
//
//   if (std::optional<RunDifference> d = FirstDifference(off, on)) Print("{}", d->Text().Shown());
#pragma once

#include <optional>
#include <string>

#include "engine/base/messages/message.h"
#include "engine/selfcheck/run_log.h"

namespace msprobe::selfcheck {

struct RunDifference {
  size_t step = 0;
  bool at_end = false;  // at the end of the program, after the last step
  Message what;         // "loss of backward 0", "gradient of layer.weight", "3 steps more"
  Message together;     // how much differs in that step: "1 of 1 losses, 4 of 4 gradients"

  Message Text() const;  // "step 2: gradient of layer.weight (in this step differ: ...)"
};

// nullopt: all steps, values and fingerprints are equal. Of several values in one step the first is
// named, in the order of ValueKind.
std::optional<RunDifference> FirstDifference(const RunLog& first, const RunLog& second);

// The median time of a run's steps, in nanoseconds. The first step is left out when there are
// others, because it includes warming up. 0 when there are no steps.
int64_t MedianStep(const RunLog& log);

}  // namespace msprobe::selfcheck
