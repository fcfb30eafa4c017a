#include "engine/compare/layouts/join_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>

#include "engine/base/file.h"
#include "engine/compare/layouts/declared_layout.h"
#include "engine/compare/layouts/joined_weights.h"
#include "engine/compare/layouts/joining.h"
#include "engine/compare/measure/run_start.h"
#include "engine/dump/read/weights_file.h"
#include "engine/model/names.h"

namespace msprobe::compare::layouts {

namespace {

// The names of the ranks' modules come first.
std::vector<std::pair<std::string, std::string>> ModulesOf(const DeclaredLayout& declared,
                                                           bool joins_target) {
  std::vector<std::pair<std::string, std::string>> modules = declared.modules;
  if (!joins_target) {
    for (auto& [target, golden] : modules) std::swap(target, golden);
  }
  return modules;
}

}  // namespace

Result<JoinedRun> JoinRanks(std::deque<RankDump> ranks, const Dump& golden, const std::string& path,
                            const JoinOptions& options) {
  // A run of one process has a folder without a number, or says that it was alone.
  const size_t processes = ProcessesOf(golden);
  const bool has_number = NumberAfter(BaseName(golden.folder), "rank") >= 0;
  if (processes > 1 || (processes == 0 && has_number)) {
    return InvalidArgument()
        .At(golden.path)
        .Expected("the run of one process, with which all ranks together are compared"_t)
        .Found(processes > 1 ? "one rank of {}"_t(processes)
                             : "a rank of a run that does not say how many it had"_t)
        .Hint(
            "record the golden on one process, or both runs on the same number of ranks; if they "
            "had "
            "that, and one recorded only some, --common compares the ranks that both have"_t);
  }
  const std::vector<StepWeight> of_golden = dump::WeightsBefore(golden);
  std::vector<std::vector<StepWeight>> before, after;
  std::vector<RankRun> runs;
  for (RankDump& rank : ranks) {
    before.push_back(dump::WeightsBefore(rank.dump));
    after.push_back(dump::WeightsAfter(rank.dump));
    runs.push_back({.rank = rank.rank,
                    .dump = std::make_shared<const Dump>(std::move(rank.dump)),
                    .modules = ModuleNames(before.back(), of_golden)});
    if (options.declared != nullptr)
      runs.back().modules.Declare(ModulesOf(*options.declared, options.joins_target));
  }
  MSPROBE_RETURN_IF_ERROR(CheckStatistics(runs, path));
  const std::set<std::string> reordered = ReorderedModules(runs, before, of_golden);
  // First calls find their partners by the shapes and numbers of parts, then by those of the whole.
  std::optional<DeclaredSide> side;
  Joining::Given given{.reordered = &reordered, .declared = options.declared};
  if (const DeclaredLayout* declared = options.declared) {
    side.emplace(options.joins_target ? declared->target_mesh : declared->golden_mesh, *declared);
    if (!declared->dims.empty()) {
      MSPROBE_RETURN_IF_ERROR(side->Check(runs.size(), path));
      given.side = &*side;
    }
    given.factor = declared->gradient_factor;
    if (given.factor && !options.joins_target) given.factor = 1 / *given.factor;
  }
  MSPROBE_ASSIGN_OR_RETURN(const JoinedRun first, Joining(runs, golden, path, given).Run());
  given.joined_before = &first.dump;
  MSPROBE_ASSIGN_OR_RETURN(JoinedRun joined, Joining(runs, golden, path, given).Run());
  joined.dump.began_with = JoinWeights(runs, before, of_golden);
  joined.dump.left_behind = JoinWeights(runs, after, of_golden);
  return joined;
}

}  // namespace msprobe::compare::layouts
