// Finds the dumps below the two paths of `msprobe compare`, and pairs them.
//
//   MSPROBE_ASSIGN_OR_RETURN(PairedDumps paired, PairDumps("runs/new", "runs/good", {}));
//   for (const DumpPair& p : paired.pairs) Print("{} against {}", p.target, p.golden);
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/dump/read/reader.h"

namespace msprobe::cli {

struct DumpPair {
  std::string target, golden;  // for ReadDump
  int rank = -1;               // -1: not distributed, or one dump a side
  bool debug_save = false;     // debug.json files
  int step = -1;               // -1: one step a side
  // Of a side with several processes that are compared as one run: their dumps, by rank. `target`
  // or `golden` is then the folder of the run.
  struct RankPath {
    int rank = -1;
    std::string path;
  };
  std::vector<RankPath> target_ranks, golden_ranks;
  bool is_joined() const { return !target_ranks.empty() || !golden_ranks.empty(); }
};

struct PairedDumps {
  std::vector<DumpPair> pairs;    // by step, then by rank
  std::vector<Message> left_out;  // sentences on the steps and ranks that only one side has
};

// How many ranks there are, whatever the steps.
size_t CountRanks(std::span<const DumpPair> pairs);

struct PairOptions {
  std::optional<std::vector<int64_t>> ranks, steps;  // only these
  bool by_order = false;  // when no rank's number is on both sides (process ids): pair by order
  bool common = false;    // steps and ranks that only one side has are left out; false: an error
  // Sides that do not have as many ranks: these are joined (compare/layouts); false: an error.
  bool join = false;
  bool join_always = false;  // also those that have as many
  // Whether the dumps of sides that have as many are read to tell; false: they are not joined.
  bool join_asks = true;
};

// Each path is a dump.json (debug.json), the folder that holds it, a step folder, or a folder with
// steps. When each side has one dump, these two are compared, whatever they are called. Otherwise
// dumps are paired by the numbers of their steps and ranks. Two step folders, or two folders with
// one step each, count as the same step. Errors: kNotFound; kInvalidArgument when the sides do not
// have the same steps and ranks, or not those of `options`.
Result<PairedDumps> PairDumps(const std::string& target, const std::string& golden,
                              const PairOptions& options = {});

// The two steps of PairDumps, for dumps that another machine has found.
struct DumpsBelow {
  enum class Kind : uint8_t { kNothing, kFile, kFolder };
  std::string path;  // "" for no path
  Kind kind = Kind::kNothing;
  std::vector<dump::DumpLocation> dumps;  // of a folder
};
Result<DumpsBelow> FindDumpsBelow(const std::string& named);
Result<PairedDumps> PairFound(DumpsBelow target, DumpsBelow golden,
                              const PairOptions& options = {});

// Calls `body` with the index of each pair, and with the bytes of `memory` that the pair may use.
// The steps of a rank are compared in their order, since each leaves its weights, with their error,
// to the next one. Ranks with small dumps are compared several at a time, each on one thread; large
// dumps and those with tensor files one after another, each on all threads. So memory holds one
// large pair, or one small pair for each thread. When `body` returns false, because the bytes are
// too few, it is called again later, alone and with all of `memory`, and the later steps of its
// rank after it.
void ForEachPair(std::span<const DumpPair> pairs, bool one_at_a_time, uint64_t memory,
                 const std::function<bool(size_t, uint64_t)>& body);

// The size of the files of both sides, in bytes.
uint64_t FileSizes(const DumpPair& pair);

}  // namespace msprobe::cli
