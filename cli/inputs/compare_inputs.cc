#include "cli/inputs/compare_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <system_error>

#include "engine/base/file.h"
#include "engine/base/threads.h"
#include "engine/compare/layouts/other_layout.h"
#include "engine/dump/read/reader.h"
#include "engine/dump/read/tag_folder.h"
#include "engine/model/memory_budget.h"
#include "engine/model/names.h"

namespace msprobe::cli {
namespace {

constexpr uint64_t kSmall = uint64_t{32} << 20;  // bytes of one side's dump.json

// A list of at most twelve numbers: "0, 1, 2, ... and 61 more".
Message Listed(const std::set<int>& numbers) {
  constexpr size_t kShown = 12;
  std::vector<Message> shown;
  for (const int n : numbers) {
    if (shown.size() == kShown) break;
    shown.push_back(n < 0 ? "one without a number"_t : Message(std::to_string(n)));
  }
  if (shown.empty()) return "none"_t;
  Message text = Message::Joined(std::move(shown), ", ");
  if (numbers.size() <= kShown) return text;
  return "{} and {} more"_t(std::move(text), numbers.size() - kShown);
}

struct Side {
  std::string path;
  std::string_view flag;
  std::map<int, std::vector<dump::DumpLocation>> steps;
  bool names_step = false;  // the path is one step or one dump: its step's number need not fit
  bool names_dump = false;  // the path is one dump: its rank's number need not fit
};

bool SamePath(const std::string& a, const std::string& b) {
  std::error_code error;
  return std::filesystem::equivalent(a, b, error) && !error;
}

Result<Side> SideOf(DumpsBelow found, std::string_view flag) {
  const std::string& path = found.path;
  if (path.empty()) return InvalidArgument("{} is empty"_t(flag)).Hint("name a folder"_t);
  Side side{.path = path, .flag = flag};
  const Message hint =
      "{} takes a folder that the run wrote below its dump_path, for example {} runs/a/step0"_t(
          flag, flag);
  if (found.kind == DumpsBelow::Kind::kNothing) {
    return NotFound(path).Expected("a dump.json, a rank folder or a step folder"_t).Hint(hint);
  }
  if (found.kind == DumpsBelow::Kind::kFile) {
    side.names_step = side.names_dump = true;
    side.steps[-1].push_back({path, -1, -1});
    return side;
  }
  const std::vector<dump::DumpLocation>& dumps = found.dumps;
  if (dumps.empty()) {
    return InvalidArgument()
        .At(path)
        .Expected("dump.json in it, or in rank folders or step folders in it"_t)
        .Found("none"_t)
        .Hint(IsDirectory(JoinPath(path, "pynative"))
                  ? "of a mixed dump, compare one part at a time: {} {}"_t(
                        flag, JoinPath(path, "pynative"))
                  : hint);
  }
  if (dumps.size() == 1 &&
      (dumps[0].path == path || SamePath(DirectoryName(dumps[0].path), path))) {
    side.names_step = side.names_dump = true;
    side.steps[-1].push_back({dumps[0].path, -1, -1});
    return side;
  }
  for (const dump::DumpLocation& dump : dumps) side.steps[dump.step].push_back(dump);
  side.names_step = side.steps.size() == 1 &&
                    (side.steps.begin()->first < 0 || NumberAfter(BaseName(path), "step") >= 0);
  return side;
}

std::set<int> StepsOf(const Side& side) {
  std::set<int> steps;
  for (const auto& [step, dumps] : side.steps) steps.insert(step);
  return steps;
}

std::set<int> RanksOf(const std::vector<dump::DumpLocation>& dumps) {
  std::set<int> ranks;
  for (const dump::DumpLocation& dump : dumps) ranks.insert(dump.rank);
  return ranks;
}

// Keeps the numbers that are wanted. A wanted number that is missing is an error, or is left out.
Status Select(const std::optional<std::vector<int64_t>>& wanted, std::string_view what,
              const std::string& where, const PairOptions& options, std::set<int>* numbers,
              PairedDumps* out) {
  if (!wanted) return Status::Ok();
  std::set<int> kept, missing;
  for (const int64_t n : *wanted) {
    (numbers->contains(static_cast<int>(n)) ? kept : missing).insert(static_cast<int>(n));
  }
  if (!missing.empty()) {
    Message text = "{} has no {} {}"_t(where, what, Listed(missing));
    if (!options.common) {
      return InvalidArgument("{}; it has {}"_t(std::move(text), Listed(*numbers)))
          .Hint("--common compares what both sides have"_t);
    }
    out->left_out.push_back(std::move(text));
  }
  *numbers = std::move(kept);
  return Status::Ok();
}

// Keeps the numbers that both sides have. A number of one side only is an error, or is left out.
Status Agree(std::string_view what, const Side& target, const Side& golden, const Message& where,
             const PairOptions& options, std::set<int>* a, std::set<int>* b, PairedDumps* out) {
  if (*a == *b) return Status::Ok();
  std::set<int> common;
  std::set_intersection(a->begin(), a->end(), b->begin(), b->end(),
                        std::inserter(common, common.end()));
  if (!options.common) {
    const size_t n = a->size(), m = b->size();
    // A rank of another layout holds another part of each value: two rank folders of such runs
    // would make right calls look wrong.
    const bool other_layout = n != m && what == "rank";
    Message why = "the {}s differ: {} has {}, {} has {}; {}s are paired by number"_t(
        what, target.path, Listed(*a), golden.path, Listed(*b), what);
    if (other_layout) {
      why = "{}, and runs on {} and on {} ranks compute different values"_t(std::move(why), n, m);
    }
    return InvalidArgument(Message::Joined({where, std::move(why)}, ": "))
        .Hint(
            other_layout
                ? (common.empty()
                       ? "record both runs on the same number of ranks"_t
                       : "record both runs on the same number of ranks; if they had that, and one "
                         "recorded only some, --common compares the ranks that both have"_t)
            : common.empty()
                ? "pass two {} folders to compare these two, whatever their numbers"_t(what)
                : "--common compares the {}s that both have; two {} folders are "
                  "compared whatever their numbers"_t(what, what));
  }
  const auto leave_out = [&](const Side& side, const std::set<int>& numbers) {
    std::set<int> rest;
    std::set_difference(numbers.begin(), numbers.end(), common.begin(), common.end(),
                        std::inserter(rest, rest.end()));
    if (!rest.empty()) {
      const Message of_side = what == "step" ? "step {} of {}"_t(Listed(rest), side.path)
                                             : "rank {} of {}"_t(Listed(rest), side.path);
      out->left_out.push_back(Message::Joined({where, of_side}, ": "));
    }
  };
  leave_out(target, *a), leave_out(golden, *b);
  *a = *b = common;
  return Status::Ok();
}

bool HaveNoneInCommon(const std::set<int>& a, const std::set<int>& b) {
  return a.size() == b.size() &&
         std::none_of(a.begin(), a.end(), [&](int number) { return b.contains(number); });
}

class Pairing {
 public:
  Pairing(Side target, Side golden, const PairOptions& options)
      : target_(std::move(target)), golden_(std::move(golden)), options_(options) {}

  Result<PairedDumps> Run() {
    std::set<int> a = StepsOf(target_), b = StepsOf(golden_);
    MSPROBE_RETURN_IF_ERROR(Select(options_.steps, "step", target_.path, options_, &a, &out_));
    MSPROBE_RETURN_IF_ERROR(Select(options_.steps, "step", golden_.path, options_, &b, &out_));
    const bool same_step =
        a.size() == 1 && b.size() == 1 && (target_.names_step || golden_.names_step);
    if (same_step) {
      MSPROBE_RETURN_IF_ERROR(PairStep(-1, *a.begin(), *b.begin()));
    } else {
      MSPROBE_RETURN_IF_ERROR(Agree("step", target_, golden_, {}, options_, &a, &b, &out_));
      for (const int step : a)
        MSPROBE_RETURN_IF_ERROR(PairStep(a.size() > 1 ? step : -1, step, step));
    }
    if (out_.pairs.empty()) {
      return InvalidArgument(
                 "{} and {} have no step and rank in common"_t(target_.path, golden_.path))
          .Hint("pass two rank folders to compare these two, whatever their numbers"_t);
    }
    return std::move(out_);
  }

 private:
  Status PairStep(int step, int target_step, int golden_step) {
    const std::vector<dump::DumpLocation>& a = target_.steps.at(target_step);
    const std::vector<dump::DumpLocation>& b = golden_.steps.at(golden_step);
    if (a.size() == 1 && b.size() == 1 && !options_.ranks) {
      const int t = a[0].rank, g = b[0].rank;
      if (t == g || t < 0 || g < 0 || target_.names_dump || golden_.names_dump) {
        Add(step, -1, a[0], b[0]);
        return Status::Ok();
      }
    }
    std::set<int> ranks = RanksOf(a), golden_ranks = RanksOf(b);
    for (const auto& [side, dumps, found] :
         {std::tuple(&target_, &a, &ranks), std::tuple(&golden_, &b, &golden_ranks)}) {
      if (found->size() != dumps->size()) {
        return InvalidArgument(
                   "{} holds several dumps of one rank, or dumps without a rank number"_t(
                       side->path))
            .Hint("pass the folder of one of them"_t);
      }
      MSPROBE_RETURN_IF_ERROR(Select(options_.ranks, "rank", side->path, options_, found, &out_));
    }
    if (options_.join && !options_.common && !options_.ranks) {
      MSPROBE_ASSIGN_OR_RETURN(const bool joins, IsOtherLayout(a, b));
      if (joins) {
        Join(step, a, b);
        return Status::Ok();
      }
    }
    if (options_.by_order && HaveNoneInCommon(ranks, golden_ranks)) {
      // Both are sorted.
      for (size_t i = 0; i < a.size(); ++i) Add(step, a[i].rank, a[i], b[i]);
      return Status::Ok();
    }
    const Message where = step >= 0 ? "step {}"_t(step) : Message();
    MSPROBE_RETURN_IF_ERROR(
        Agree("rank", target_, golden_, where, options_, &ranks, &golden_ranks, &out_));
    const auto of = [](const std::vector<dump::DumpLocation>& dumps,
                       int rank) -> const dump::DumpLocation& {
      return *std::find_if(dumps.begin(), dumps.end(),
                           [&](const dump::DumpLocation& dump) { return dump.rank == rank; });
    };
    for (const int rank : ranks) Add(step, rank, of(a, rank), of(b, rank));
    return Status::Ok();
  }

  // Whether the ranks of the two sides are no pairs. All steps of a run have one layout.
  Result<bool> IsOtherLayout(const std::vector<dump::DumpLocation>& a,
                             const std::vector<dump::DumpLocation>& b) {
    if (a.size() != b.size()) return true;
    if (options_.join_always && a.size() > 1) return true;
    if (!options_.join_asks) return false;
    if (!other_layout_) {
      const auto paths_of = [](const std::vector<dump::DumpLocation>& dumps) {
        std::vector<std::string> paths;
        for (const dump::DumpLocation& dump : dumps) paths.push_back(dump.path);
        return paths;
      };
      // What cannot be read is reported where it is compared.
      const Result<bool> found = compare::layouts::AreOtherLayouts(paths_of(a), paths_of(b));
      other_layout_ = found.ok() && *found;
    }
    return *other_layout_;
  }

  void Join(int step, const std::vector<dump::DumpLocation>& a,
            const std::vector<dump::DumpLocation>& b) {
    const auto ranks_of = [](const std::vector<dump::DumpLocation>& dumps) {
      std::vector<DumpPair::RankPath> ranks;
      for (const dump::DumpLocation& dump : dumps) ranks.push_back({dump.rank, dump.path});
      return dumps.size() > 1 ? ranks : std::vector<DumpPair::RankPath>();
    };
    out_.pairs.push_back({.target = a.size() > 1 ? target_.path : a[0].path,
                          .golden = b.size() > 1 ? golden_.path : b[0].path,
                          .step = step,
                          .target_ranks = ranks_of(a),
                          .golden_ranks = ranks_of(b)});
  }

  void Add(int step, int rank, const dump::DumpLocation& target, const dump::DumpLocation& golden) {
    const auto is_debug = [](const std::string& path) { return BaseName(path) == "debug.json"; };
    out_.pairs.push_back(
        {target.path, golden.path, rank, is_debug(target.path) && is_debug(golden.path), step});
  }

  Side target_, golden_;
  const PairOptions& options_;
  std::optional<bool> other_layout_;
  PairedDumps out_;
};

// "" for the folder of a run, whose ranks are several dumps.
std::string DumpFileOf(const std::string& path) {
  if (!IsDirectory(path)) return path;
  Result<std::string> located = dump::LocateDump(path);
  return located.ok() ? *located : "";
}

uint64_t FileSize(const std::string& path) {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  return error ? 0 : size;
}

// Large pairs are compared one after the other: several at a time would need too much memory.
bool IsLarge(const std::string& path) {
  const std::string file = DumpFileOf(path);
  return FileSize(file) > kSmall || IsDirectory(JoinPath(DirectoryName(file), "dump_tensor_data"));
}

}  // namespace

Result<PairedDumps> PairDumps(const std::string& target, const std::string& golden,
                              const PairOptions& options) {
  MSPROBE_ASSIGN_OR_RETURN(DumpsBelow a, FindDumpsBelow(target));
  MSPROBE_ASSIGN_OR_RETURN(DumpsBelow b, FindDumpsBelow(golden));
  return PairFound(std::move(a), std::move(b), options);
}

Result<DumpsBelow> FindDumpsBelow(const std::string& named) {
  DumpsBelow found;
  if (named.empty()) return found;
  found.path = dump::ExistingTag(named);
  if (!Exists(found.path)) return found;
  found.kind = IsDirectory(found.path) ? DumpsBelow::Kind::kFolder : DumpsBelow::Kind::kFile;
  if (found.kind == DumpsBelow::Kind::kFolder) {
    MSPROBE_ASSIGN_OR_RETURN(found.dumps, dump::FindDumps(found.path));
  }
  return found;
}

Result<PairedDumps> PairFound(DumpsBelow target, DumpsBelow golden, const PairOptions& options) {
  MSPROBE_ASSIGN_OR_RETURN(Side a, SideOf(std::move(target), "-tp"));
  MSPROBE_ASSIGN_OR_RETURN(Side b, SideOf(std::move(golden), "-gp"));
  return Pairing(std::move(a), std::move(b), options).Run();
}

uint64_t FileSizes(const DumpPair& pair) {
  uint64_t size = FileSize(DumpFileOf(pair.target)) + FileSize(DumpFileOf(pair.golden));
  for (const auto* ranks : {&pair.target_ranks, &pair.golden_ranks}) {
    for (const DumpPair::RankPath& rank : *ranks) size += FileSize(DumpFileOf(rank.path));
  }
  return size;
}

void ForEachPair(std::span<const DumpPair> pairs, bool one_at_a_time, uint64_t memory,
                 const std::function<bool(size_t, uint64_t)>& body) {
  // Most dumps need at most so many times the size of their files. `body` tells when one needs
  // more.
  constexpr uint64_t kTimesItsFile = 3;
  std::map<int32_t, std::vector<size_t>> ranks;
  for (size_t i = 0; i < pairs.size(); ++i) ranks[pairs[i].rank].push_back(i);
  const uint64_t at_a_time = std::min(ThreadPool::Default().threads(), ranks.size());
  const uint64_t each = (memory - std::min(memory, FixedMemory())) / at_a_time;
  const auto is_alone = [&](size_t i) {
    return one_at_a_time || IsLarge(pairs[i].target) || IsLarge(pairs[i].golden) ||
           FileSizes(pairs[i]) > each / kTimesItsFile;
  };
  // The steps of a rank follow each other; from the first that does not fit beside others, alone.
  std::vector<std::vector<size_t>> together;
  std::vector<size_t> alone;
  for (auto& [rank, steps] : ranks) {
    const auto from = ranks.size() == 1 ? steps.begin() : std::ranges::find_if(steps, is_alone);
    alone.insert(alone.end(), from, steps.end());
    together.emplace_back(steps.begin(), from);
  }
  std::mutex mutex;
  ThreadPool::Default().ParallelFor(together.size(), [&](size_t rank) {
    const std::vector<size_t>& steps = together[rank];
    for (size_t k = 0; k < steps.size(); ++k) {
      if (body(steps[k], each + FixedMemory())) continue;
      const std::lock_guard lock(mutex);
      alone.insert(alone.end(), steps.begin() + static_cast<int64_t>(k), steps.end());
      return;
    }
  });
  std::sort(alone.begin(), alone.end());
  for (const size_t i : alone) (void)body(i, memory);
}

size_t CountRanks(std::span<const DumpPair> pairs) {
  std::set<int> ranks;
  for (const DumpPair& pair : pairs) ranks.insert(pair.rank);
  return ranks.size();
}

}  // namespace msprobe::cli
