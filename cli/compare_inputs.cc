#include "cli/compare_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "engine/base/file.h"
#include "engine/dump/reader.h"

namespace msprobe {
namespace {

// At most a dozen numbers: "0, 1, 2, ... and 61 more".
std::string Listed(const std::set<int>& numbers) {
  std::string text;
  size_t shown = 0;
  for (int n : numbers) {
    if (shown == 12) return text + fmt::format(" and {} more", numbers.size() - shown);
    text += fmt::format("{}{}", shown++ == 0 ? "" : ", ", n);
  }
  return text;
}

struct Side {
  std::vector<DumpLocation> dumps;
  bool named = false;  // the path names one dump, so its rank number does not matter
};

bool HoldsDump(const std::string& folder) {
  return IsRegularFile(JoinPath(folder, "dump.json")) ||
         IsRegularFile(JoinPath(folder, "debug.json"));
}

Result<Side> FindSide(const std::string& path, std::string_view flag) {
  if (path.empty()) return InvalidArgument(fmt::format("{} is empty", flag)).Hint("name a folder");
  if (!IsDirectory(path) || HoldsDump(path)) {
    if (!Exists(path)) {
      return NotFound(path)
          .Expected("a dump.json, a rank folder or a step folder")
          .Hint(fmt::format(
              "{} takes what the run wrote below its dump_path, for example {} runs/a/step0", flag,
              flag));
    }
    return Side{{{path, -1, -1}}, true};
  }
  Side side;
  MSPROBE_ASSIGN_OR_RETURN(side.dumps, FindDumps(path));
  if (side.dumps.empty()) {
    return InvalidArgument()
        .At(path)
        .Expected("dump.json in it, or in rank folders or step folders in it")
        .Found("none")
        .Hint(fmt::format(
            "{} takes what the run wrote below its dump_path, for example {} runs/a/step0", flag,
            flag));
  }
  std::set<int> steps;
  for (const DumpLocation& dump : side.dumps) steps.insert(dump.step);
  if (steps.size() > 1) {
    return InvalidArgument(fmt::format("{} holds {} steps ({}); one step is compared at a time",
                                       path, steps.size(), Listed(steps)))
        .Hint(fmt::format("{} {}", flag, JoinPath(path, fmt::format("step{}", *steps.begin()))));
  }
  return side;
}

}  // namespace

Result<std::vector<DumpPair>> PairDumps(const std::string& target, const std::string& golden) {
  MSPROBE_ASSIGN_OR_RETURN(Side a, FindSide(target, "-tp"));
  MSPROBE_ASSIGN_OR_RETURN(Side b, FindSide(golden, "-gp"));
  const auto is_debug = [](const std::string& path) { return BaseName(path) == "debug.json"; };
  const auto pair = [&](const DumpLocation& t, const DumpLocation& g, int rank) {
    return DumpPair{t.path, g.path, rank, is_debug(t.path) && is_debug(g.path)};
  };
  if (a.dumps.size() == 1 && b.dumps.size() == 1) {
    const int t = a.dumps[0].rank, g = b.dumps[0].rank;
    if (t == g || t < 0 || g < 0 || a.named || b.named) {
      return std::vector<DumpPair>{pair(a.dumps[0], b.dumps[0], -1)};
    }
  }
  const auto by_rank = [](const DumpLocation& x, const DumpLocation& y) { return x.rank < y.rank; };
  std::sort(a.dumps.begin(), a.dumps.end(), by_rank);
  std::sort(b.dumps.begin(), b.dumps.end(), by_rank);
  std::set<int> target_ranks, golden_ranks;
  for (const DumpLocation& dump : a.dumps) target_ranks.insert(dump.rank);
  for (const DumpLocation& dump : b.dumps) golden_ranks.insert(dump.rank);
  if (target_ranks.size() != a.dumps.size() || golden_ranks.size() != b.dumps.size()) {
    const std::string& where = target_ranks.size() != a.dumps.size() ? target : golden;
    return InvalidArgument(
               fmt::format("{} holds several dumps of one rank, or dumps without a rank number",
                           where))
        .Hint("pass the folder of one of them");
  }
  if (target_ranks != golden_ranks) {
    return InvalidArgument(
               fmt::format("the ranks differ: {} has {}, {} has {}; ranks are paired by number",
                           target, Listed(target_ranks), golden, Listed(golden_ranks)))
        .Hint("pass two rank folders to compare these two, whatever their numbers");
  }
  std::vector<DumpPair> pairs;
  for (size_t i = 0; i < a.dumps.size(); ++i) {
    pairs.push_back(pair(a.dumps[i], b.dumps[i], a.dumps[i].rank));
  }
  return pairs;
}

}  // namespace msprobe
