// What a configuration asked for and a run did not have: ranks, steps, names of calls. It is said
// at the end of the run, because a missing dump looks as if the program had computed nothing.
//
//   RunExtent extent;  // kept while the program runs
//   for (const Message& line : UnmetRequests(config, filter, extent))
//     Log(LogLevel::kWarning, line);   // "step 5 was asked for, the run ended at step 3: ..."
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/dump/config/config.h"
#include "engine/dump/config/filter.h"

namespace msprobe::dump {

struct RunExtent {
  int64_t last_step = -1;   // the last for which a start was asked; -1: none
  std::set<int64_t> steps;  // that have entries; kept only when the configuration names steps
  std::optional<int> rank;  // of this process; nullopt: not distributed, or no start was asked
  int ranks = 0;            // of the run; 0: not known
  bool collected = false;   // some step and rank was wanted, and collected
  bool recorded = false;    // an entry was written
};

// Lines for the log; empty when everything was met, or no start was asked for. Ranks that the run
// does not have are told by rank 0 alone; what a rank should have recorded, by that rank.
std::vector<Message> UnmetRequests(const Config& config, const Filter& filter,
                                   const RunExtent& extent);

}  // namespace msprobe::dump
