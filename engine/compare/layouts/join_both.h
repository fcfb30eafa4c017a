// Two runs on several ranks in different parallel layouts: the ranks of each side as one dump, so
// that the two can be compared. Nobody has a value whole: what both sides hold of it tells its
// shape (whole_shape.h).
//
//   MSPROBE_ASSIGN_OR_RETURN(JoinedSides sides, JoinBoth({"runs/tp2", std::move(target)},
//                                                        {"runs/tp4", std::move(golden)}));
//   Compare(std::move(sides.target), std::move(sides.golden), options);
//
// A value of which the two sides do not tell what the whole is has no numbers in either dump: it is
// not compared.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/compare/layouts/join_ranks.h"

namespace msprobe::compare::layouts {

struct RanksOfSide {
  std::string path;  // of the run, for reports
  std::deque<RankDump> ranks;
};

struct JoinedSides {
  Dump target, golden;
  std::vector<Message> notes;  // as JoinedRun has them, for both sides
};

// `declared`: what the user says, or null. Errors: as JoinRanks; not all ranks of a run are there.
Result<JoinedSides> JoinBoth(RanksOfSide target, RanksOfSide golden,
                             const DeclaredLayout* declared = nullptr);

}  // namespace msprobe::compare::layouts
