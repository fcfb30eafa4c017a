// What the two paths of `msprobe compare` mean: which dump is compared with which.
//
//   MSPROBE_ASSIGN_OR_RETURN(PairedDumps paired, PairDumps("runs/new", "runs/good", {}));
//   for (const DumpPair& p : paired.pairs) Print("{} against {}", p.target, p.golden);
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/status.h"

namespace msprobe::cli {

struct DumpPair {
  std::string target, golden;  // for ReadDump
  int rank = -1;               // -1: not distributed, or one dump a side
  bool debug_save = false;     // debug.json files
  int step = -1;               // -1: one step a side
};

struct PairedDumps {
  std::vector<DumpPair> pairs;        // by step, then by rank
  std::vector<std::string> left_out;  // what only one side has, as sentences
};

struct PairOptions {
  std::optional<std::vector<int64_t>> ranks, steps;  // only these
  bool by_order = false;  // ranks with no number in common (process ids) are paired by order
  bool common = false;    // compare what both sides have, instead of refusing
};

// Each path is a dump.json (debug.json), the folder that holds it, a step folder, or a folder with
// steps. One dump a side: these two, whatever they are called. Several: paired by number of step
// and rank. Two step folders, or folders of one step, count as the same step. Errors: kNotFound;
// kInvalidArgument when the sides do not have the same steps and ranks, or not the wanted ones.
Result<PairedDumps> PairDumps(const std::string& target, const std::string& golden,
                              const PairOptions& options = {});

// Calls `body` with the index of each pair: of small dumps several at a time, each on one thread,
// large ones and those with tensor files one after another, each on all threads. So memory holds at
// most one large pair, or a small one a thread. `body` also gets how much of `memory` bytes the
// pair may take; where it answers that this is too little, it is called again, alone, with all.
void ForEachPair(std::span<const DumpPair> pairs, bool one_at_a_time, uint64_t memory,
                 const std::function<bool(size_t, uint64_t)>& body);

// Bytes of the files of both sides.
uint64_t FileSizes(const DumpPair& pair);

}  // namespace msprobe::cli
