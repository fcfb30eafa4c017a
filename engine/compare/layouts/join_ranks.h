// The dumps of all ranks of a run as the dump of one process that does what they do together, so
// that it can be compared with a run in another parallel layout.
//
//   MSPROBE_ASSIGN_OR_RETURN(JoinedRun joined, JoinRanks(std::move(ranks), golden, "runs/new"));
//   Compare(std::move(joined.dump), std::move(golden), options);
//
// Calls at one place are one call; a value of theirs is joined as its parts lie (value_layout.h).
// The names of modules and calls are the golden's, where a stage or an expert counts from 0. A rule
// of compare does not know that a value was joined; Dump::joined says of each how.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/model/table.h"

namespace msprobe::compare::layouts {

struct DeclaredLayout;

struct RankDump {
  int32_t rank = 0;
  Dump dump;
};

struct JoinedRun {
  Dump dump;
  // Sentences without a full stop: how many values are whole, how many were joined, which could not
  // be; what the layers of a rank are in the golden; the factor of gradients.
  std::vector<Message> notes;
};

struct JoinOptions {
  const DeclaredLayout* declared = nullptr;  // what the user says (declared_layout.h)
  bool joins_target = true;                  // false: the ranks are the golden's
};

// `path`: of the run, for reports. Errors: kInvalidArgument where the dumps have no statistics, or
// are of a tool that does not say how their calls belong together; kInvalidConfig where what the
// user says is not what was recorded.
Result<JoinedRun> JoinRanks(std::deque<RankDump> ranks, const Dump& golden, const std::string& path,
                            const JoinOptions& options = {});

}  // namespace msprobe::compare::layouts
