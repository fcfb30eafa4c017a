#include "cli/inputs/pair_sides.h"

#include <optional>
#include <utility>

#include "engine/base/threads.h"
#include "engine/compare/layouts/join_both.h"
#include "engine/compare/layouts/join_ranks.h"
#include "engine/dump/read/weights_file.h"

namespace msprobe::cli {
namespace {

Result<PairSides> JoinSides(const DumpPair& pair, const DumpFlags& dumps,
                            const compare::layouts::DeclaredLayout* declared,
                            MemoryBudget* memory) {
  using compare::layouts::JoinBoth, compare::layouts::JoinRanks;
  MSPROBE_ASSIGN_OR_RETURN(auto target_ranks, dumps.ReadRanks(pair.target_ranks, memory));
  MSPROBE_ASSIGN_OR_RETURN(auto golden_ranks, dumps.ReadRanks(pair.golden_ranks, memory));
  if (!target_ranks.empty() && !golden_ranks.empty()) {
    MSPROBE_ASSIGN_OR_RETURN(auto joined,
                             JoinBoth({pair.target, std::move(target_ranks)},
                                      {pair.golden, std::move(golden_ranks)}, declared));
    return PairSides{std::move(joined.target), std::move(joined.golden), std::move(joined.notes)};
  }
  const bool joins_target = !target_ranks.empty();
  MSPROBE_ASSIGN_OR_RETURN(Dump one, dumps.Read(!joins_target, pair, memory));
  MSPROBE_ASSIGN_OR_RETURN(auto joined,
                           JoinRanks(std::move(joins_target ? target_ranks : golden_ranks), one,
                                     joins_target ? pair.target : pair.golden,
                                     {.declared = declared, .joins_target = joins_target}));
  // Reports on all steps ask for them, when the dump may be a copy elsewhere.
  one.began_with = dump::WeightsBefore(one);
  PairSides sides{std::move(joined.dump), std::move(one), std::move(joined.notes)};
  if (!joins_target) std::swap(sides.target, sides.golden);
  return sides;
}

}  // namespace

Result<PairSides> ReadSides(const DumpPair& pair, const DumpFlags& dumps,
                            const compare::layouts::DeclaredLayout* declared,
                            MemoryBudget* memory) {
  if (pair.is_joined()) return JoinSides(pair, dumps, declared, memory);
  std::optional<Result<Dump>> sides[2];
  const auto read = [&](size_t i) { sides[i] = dumps.Read(i == 0, pair, memory); };
  // With two cores the two dumps are read at the same time, one on each core. With more cores one
  // dump is read on all cores, then the other.
  if (ThreadPool::Default().threads() == 2) {
    ThreadPool::Default().ParallelFor(2, read);
  } else {
    read(0), read(1);
  }
  MSPROBE_ASSIGN_OR_RETURN(Dump target, *std::move(sides[0]));
  MSPROBE_ASSIGN_OR_RETURN(Dump golden, *std::move(sides[1]));
  return PairSides{std::move(target), std::move(golden)};
}

}  // namespace msprobe::cli
