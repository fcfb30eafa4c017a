// Which rank of a training was the first that differs from its baseline. The ranks do not talk:
// each writes a file into the dump folder, and reads those of the others. The order is that of the
// steps, then that of the calls in a step: ranks that run the same program (data parallelism) have
// the same calls. Clocks decide nothing, because those of hosts differ; the time is in the file for
// people.
//
//   MSPROBE_RETURN_IF_ERROR(TellOthers("runs/now", rank, answer));   // first_divergence.rank1.json
//   Print(WhoWasFirst("runs/now", rank, answer).Shown());
//   ForgetDivergence("runs/now", rank);                              // a new run begins
#pragma once

#include <optional>
#include <string>

#include "engine/base/status.h"
#include "engine/live/live_comparison.h"

namespace msprobe::live {

void ForgetDivergence(const std::string& dump_path, std::optional<int> rank);
Status TellOthers(const std::string& dump_path, std::optional<int> rank, const Answer& answer);
// "rank 1 differs earlier: step 3, Functional.gelu.0.forward", or that this rank is the first so
// far; "" when no other rank has told anything.
Message WhoWasFirst(const std::string& dump_path, std::optional<int> rank, const Answer& answer);

}  // namespace msprobe::live
