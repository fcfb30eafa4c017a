// What the two paths of `msprobe compare` mean: which dump is compared with which.
//
//   MSPROBE_ASSIGN_OR_RETURN(std::vector<DumpPair> pairs, PairDumps("runs/new/step0",
//   "runs/good/step0")); for (const DumpPair& p : pairs) Compare(ReadDump(p.target),
//   ReadDump(p.golden));
#pragma once

#include <string>
#include <vector>

#include "engine/base/status.h"

namespace msprobe {

struct DumpPair {
  std::string target, golden;  // for ReadDump
  int rank = -1;               // -1: not distributed, or one dump a side
  bool debug_save = false;     // debug.json files
};

// Each path is a dump.json (debug.json), the folder that holds it, a step folder, or a folder with
// one step. One dump a side: these two, whatever they are called. Several ranks: paired by rank
// number. Errors: kNotFound; kInvalidArgument when several steps are below a path, or the sides do
// not have the same ranks.
Result<std::vector<DumpPair>> PairDumps(const std::string& target, const std::string& golden);

}  // namespace msprobe
