// Whether two runs of one program computed the same bits, and where they part first.
//
//   if (std::optional<RunDifference> d = FirstDifference(off, on)) Print("{}", d->Text());
#pragma once

#include <optional>
#include <string>

#include "engine/selfcheck/run_log.h"

namespace msprobe::selfcheck {

struct RunDifference {
  size_t step = 0;
  bool at_end = false;   // behind the last step
  std::string what;      // "loss of backward 0", "gradient of layer.weight", "3 steps more"
  std::string together;  // what differs in that step, counted: "1 of 1 losses, 4 of 4 gradients"

  std::string Text() const;  // "step 2: gradient of layer.weight (in this step differ: ...)"
};

// nullopt: the same steps, values and fingerprints. In one step the order is that of ValueKind.
std::optional<RunDifference> FirstDifference(const RunLog& first, const RunLog& second);

// Middle of the times of a run's steps, in nanoseconds; the first step, which warms up, is left out
// when others are there. 0 without steps.
int64_t MedianStep(const RunLog& log);

}  // namespace msprobe::selfcheck
