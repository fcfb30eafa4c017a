// The two dumps of a pair of `msprobe compare`: of a side with several ranks that are joined, the
// dump to which they are.
//
//   MSPROBE_ASSIGN_OR_RETURN(PairSides sides, ReadSides(pair, dumps, declared, &budget));
//   Compare(std::move(sides.target), std::move(sides.golden), options);
#pragma once

#include <vector>

#include "cli/inputs/compare_inputs.h"
#include "cli/inputs/dump_flags.h"
#include "engine/base/status.h"
#include "engine/compare/layouts/declared_layout.h"

namespace msprobe::cli {

struct PairSides {
  Dump target, golden;
  std::vector<Message> notes = {};  // of joining
};

// `declared`: what the user says of the layouts, or null. Errors: those of ReadDump, JoinRanks and
// JoinBoth.
Result<PairSides> ReadSides(const DumpPair& pair, const DumpFlags& dumps,
                            const compare::layouts::DeclaredLayout* declared, MemoryBudget* memory);

}  // namespace msprobe::cli
