#include "cli/cluster/compare_on_ray.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "cli/cluster/copy_on_ray.h"
#include "cli/cluster/node_answer.h"
#include "cli/cluster/ranks_on_nodes.h"
#include "cli/cluster/ray_nodes.h"
#include "engine/base/file.h"
#include "engine/compare/ranks/compared_part.h"

namespace msprobe::cli {
namespace {

// The dumps of all nodes as one list, as if one machine had them. Where two nodes have a rank at
// different paths, the path of the first node counts.
DumpsBelow OnAllNodes(std::span<const RayNodes::Node> nodes, FoundDumps RayNodes::Node::*side) {
  DumpsBelow all;
  std::map<std::pair<int, int>, dump::DumpLocation> dumps;
  for (const RayNodes::Node& node : nodes) {
    const DumpsBelow& found = (node.*side).dumps;
    if (found.kind == DumpsBelow::Kind::kNothing || !node.wrong.empty()) continue;
    if (all.kind == DumpsBelow::Kind::kNothing) {
      all.kind = found.kind;
      all.path = found.path;
    }
    if (found.path != all.path) continue;
    for (const dump::DumpLocation& dump : found.dumps)
      dumps.emplace(std::pair(dump.step, dump.rank), dump);
  }
  for (auto& [place, dump] : dumps) all.dumps.push_back(std::move(dump));
  return all;
}

// The dumps that are compared, of all nodes.
Result<PairedDumps> PairOnNodes(const RayComparison& wanted,
                                std::span<const RayNodes::Node> nodes) {
  DumpsBelow target = OnAllNodes(nodes, &RayNodes::Node::target);
  DumpsBelow golden = OnAllNodes(nodes, &RayNodes::Node::golden);
  for (const auto& [path, found] :
       {std::pair(&wanted.target, &target), {&wanted.golden, &golden}}) {
    if (found->kind != DumpsBelow::Kind::kNothing) continue;
    return NotFound(*path)
        .Expected("a folder with dumps on a node of the cluster"_t)
        .Hint(
            "each node looks at the same path: copy the dumps there, or type the path that its "
            "machines have"_t);
  }
  MSPROBE_ASSIGN_OR_RETURN(PairedDumps paired,
                           PairFound(std::move(target), std::move(golden), wanted.selection));
  if (wanted.check) MSPROBE_RETURN_IF_ERROR(wanted.check(paired.pairs));
  if (AreJoined(paired)) return paired;
  const auto is_first = [&](const DumpPair& p) { return p.rank == paired.pairs.front().rank; };
  if (std::ranges::all_of(paired.pairs, is_first)) {
    return InvalidArgument("--ray compares many ranks, and there is one"_t)
        .Hint("leave --ray out: one process compares it"_t);
  }
  return paired;
}

// Each rank is a part.
int64_t CountParts(const PairedDumps& paired) {
  std::set<int> ranks;
  for (const DumpToCopy& dump : DumpsToCopy(paired)) ranks.insert(dump.rank);
  return static_cast<int64_t>(ranks.size());
}

// The parts of another comparison are neither replaced nor mixed with these.
Status CheckFolder(const RayComparison& wanted, int64_t count) {
  if (!IsDirectory(wanted.folder)) return Status::Ok();
  const Result<compare::ComparedPart> found = compare::ReadParts(wanted.folder);
  if (found.status().code() == ErrorCode::kNotFound) return Status::Ok();
  if (found.ok() && found->count == count && found->target == wanted.target &&
      found->golden == wanted.golden)
    return Status::Ok();
  return InvalidArgument("{} has parts of another comparison"_t(wanted.folder))
      .Hint("name another folder with -o, or remove its files compare_part_*.bin"_t);
}

class RayComparing {
 public:
  RayComparing(const RayComparison& wanted, RayNodes nodes, const PairedDumps& paired,
               RunFolder folder, Console& out)
      : wanted_(wanted),
        nodes_(std::move(nodes)),
        left_out_(paired.left_out),
        ranks_(paired.pairs, nodes_.nodes()),
        folder_(std::move(folder)),
        out_(out) {
    for (size_t n = 0; n < nodes_.nodes().size(); ++n) {
      if (nodes_.nodes()[n].wrong.empty()) free_.insert(n);
    }
  }

  Status Run() {
    for (size_t rank = 0; rank < ranks_.ranks().size(); ++rank)
      MSPROBE_RETURN_IF_ERROR(Fail(rank, "the comparison was stopped before"_t));
    done_ = 0;
    out_.SetLastWords("what is compared stays; msprobe merge_result -i {} -o {} reports on it"_t(
        wanted_.folder, wanted_.folder));
    for (;;) {
      MSPROBE_RETURN_IF_ERROR(FailWithoutNode());
      StartFree();
      if (running_.empty()) return Status::Ok();
      out_.ProgressOf("{} of {} ranks compared"_t(done_, ranks_.ranks().size()), done_,
                      ranks_.ranks().size());
      const Result<RayNodes::Ended> ended = nodes_.WaitForOne();
      if (!ended.ok()) return FailAll(ended.status().AsMessage());
      MSPROBE_RETURN_IF_ERROR(End(*ended));
    }
  }

 private:
  struct Task {
    size_t node = 0;
    std::vector<size_t> ranks;
    std::string file;
  };

  // A node sees few of the ranks: it is told what their number means for the tables.
  std::string RowsFlag() const {
    return wanted_.table.LeavesRowsOut(ranks_.ranks().size()) ? "--differing-rows" : "--all-rows";
  }

  // The command of a hint names the sides by their place, and sees all ranks.
  std::string RowsFlagOfHint() const {
    const size_t ranks = ranks_.ranks().size();
    const bool usual = ranks > compare::kManyRanks;
    return wanted_.table.LeavesRowsOut(ranks) == usual ? "" : " " + RowsFlag();
  }

  int64_t Count() const { return static_cast<int64_t>(ranks_.ranks().size()); }
  std::string NameOf(size_t node) const { return nodes_.nodes()[node].name; }

  Status Write(size_t rank, std::vector<compare::ComparedPair> compared) {
    compare::ComparedPart part{.index = static_cast<int64_t>(rank) + 1,
                               .count = Count(),
                               .target = wanted_.target,
                               .golden = wanted_.golden,
                               .left_out = left_out_,
                               .pairs = {},
                               .compared = std::move(compared)};
    ++done_;
    return compare::WritePart(part, wanted_.folder);
  }

  Status Fail(size_t rank, const Message& why) {
    Status failed =
        Unsupported("not compared: {}"_t(why))
            .Hint(
                "msprobe compare {} {}{} --part {}/{} -o {}, then: msprobe "
                "merge_result -i {} -o {}"_t(
                    wanted_.target, wanted_.golden, wanted_.selection_flags + RowsFlagOfHint(),
                    rank + 1, Count(), wanted_.folder, wanted_.folder, wanted_.folder));
    std::vector<compare::ComparedPair> pairs;
    for (const DumpPair& pair : ranks_.ranks()[rank].pairs) {
      compare::ComparedPair& kept = pairs.emplace_back();
      kept.step = kept.result.step = pair.step;
      kept.rank = kept.result.rank = pair.rank;
      kept.target = kept.result.target = pair.target;
      kept.golden = kept.result.golden = pair.golden;
      kept.result.failed = failed;
    }
    return Write(rank, std::move(pairs));
  }

  // What is missing where, of a rank that no node can compare.
  Message WhyNone(const RanksOnNodes::Rank& rank) const {
    if (!rank.lost_nodes.empty()) {
      std::vector<Message> names;
      for (const size_t node : rank.lost_nodes) names.emplace_back(NameOf(node));
      return "the node that compared it was lost: {}"_t(Message::Joined(std::move(names), ", "));
    }
    for (const DumpPair& pair : rank.pairs) {
      if (Message missing = MissingOf(pair); !missing.empty()) return missing;
    }
    return "no node has the dumps of all steps of rank {}"_t(rank.number);
  }

  // No text: a node has both dumps.
  Message MissingOf(const DumpPair& pair) const {
    const auto has = [](const FoundDumps& found, const std::string& path) {
      const auto& dumps = found.dumps.dumps;
      return std::ranges::find(dumps, path, &dump::DumpLocation::path) != dumps.end();
    };
    const RayNodes::Node *target = nullptr, *golden = nullptr;  // a node that has it
    for (size_t n = 0; n < nodes_.nodes().size(); ++n) {
      const RayNodes::Node& node = nodes_.nodes()[n];
      const bool has_target = has(node.target, pair.target);
      const bool has_golden = has(node.golden, pair.golden);
      if (has_target && has_golden)
        return lost_.contains(n) ? "node {} was lost"_t(node.name) : Message();
      if (has_target) target = &node;
      if (has_golden) golden = &node;
    }
    if (target == nullptr || golden == nullptr) return {};
    return "{} is on node {}, and {} on node {}: one node needs both"_t(pair.target, target->name,
                                                                        pair.golden, golden->name);
  }

  Status FailWithoutNode() {
    for (const size_t rank : ranks_.TakeWithoutNode())
      MSPROBE_RETURN_IF_ERROR(Fail(rank, WhyNone(ranks_.ranks()[rank])));
    return Status::Ok();
  }

  // Of the ranks that nobody has compared yet: the cluster is gone.
  Status FailAll(const Message& why) {
    for (auto& [id, task] : running_) {
      for (const size_t rank : task.ranks) MSPROBE_RETURN_IF_ERROR(Fail(rank, why));
    }
    for (size_t node = 0; node < nodes_.nodes().size(); ++node) {
      for (auto block = ranks_.Take(node); !block.empty(); block = ranks_.Take(node)) {
        for (const size_t rank : block) MSPROBE_RETURN_IF_ERROR(Fail(rank, why));
      }
    }
    return Status::Ok();
  }

  void StartFree() {
    for (auto node = free_.begin(); node != free_.end();) {
      const std::vector<size_t> block = ranks_.Take(*node);
      if (block.empty()) {
        ++node;
        continue;
      }
      std::vector<int> numbers;
      for (const size_t rank : block) numbers.push_back(ranks_.ranks()[rank].number);
      const size_t id = next_task_++;
      const std::string file = JoinPath(folder_.path(), fmt::format("answer_{}", id));
      std::vector<std::string> words = wanted_.words;
      if (!wanted_.table.all_rows && !wanted_.table.differing_rows) words.push_back(RowsFlag());
      words.push_back(fmt::format("--rank={}", fmt::join(numbers, ",")));
      words.emplace_back("--part=1/1");
      nodes_.Start({.task = id, .node = *node, .words = std::move(words), .file = file});
      running_.emplace(id, Task{*node, block, file});
      node = free_.erase(node);
    }
  }

  Status End(const RayNodes::Ended& ended) {
    const auto running = running_.find(ended.task);
    if (running == running_.end()) return Internal("a task ended that was not started"_t);
    const Task task = std::move(running->second);
    running_.erase(running);
    if (ended.end == RayNodes::End::kLost) {
      out_.Warn("node {} was lost: {}"_t(NameOf(task.node), ended.said));
      lost_.insert(task.node);
      ranks_.Lose(task.node, task.ranks);
      return Status::Ok();
    }
    free_.insert(task.node);
    if (ended.end == RayNodes::End::kFailed) return FailTask(task, ended.said);
    std::vector<DumpPair> pairs;
    for (const size_t rank : task.ranks) {
      const std::vector<DumpPair>& of_rank = ranks_.ranks()[rank].pairs;
      pairs.insert(pairs.end(), of_rank.begin(), of_rank.end());
    }
    Result<std::vector<compare::ComparedPair>> compared =
        TakeAnswer(task.file, pairs, wanted_.folder);
    MSPROBE_RETURN_IF_ERROR(RemoveFile(task.file));
    if (!compared.ok()) return FailTask(task, compared.status().AsMessage());
    for (const size_t rank : task.ranks) {
      std::vector<compare::ComparedPair> of_rank;
      for (compare::ComparedPair& pair : *compared) {
        if (pair.rank == ranks_.ranks()[rank].number) of_rank.push_back(std::move(pair));
      }
      MSPROBE_RETURN_IF_ERROR(Write(rank, std::move(of_rank)));
    }
    return Status::Ok();
  }

  // A single rank may be the cause: ranks of a block are compared once more, one by one.
  Status FailTask(const Task& task, const Message& why) {
    if (task.ranks.size() > 1) {
      ranks_.GiveBack(task.ranks);
      return Status::Ok();
    }
    for (const size_t rank : task.ranks)
      MSPROBE_RETURN_IF_ERROR(Fail(rank, "node {}: {}"_t(NameOf(task.node), why)));
    return Status::Ok();
  }

  const RayComparison& wanted_;
  RayNodes nodes_;
  const std::vector<Message> left_out_;
  RanksOnNodes ranks_;
  const RunFolder folder_;  // for answers
  Console& out_;
  std::set<size_t> free_, lost_;  // nodes
  std::map<size_t, Task> running_;
  size_t next_task_ = 0, done_ = 0;
};

}  // namespace

Result<compare::ComparedPart> CompareOnRay(const RayComparison& wanted, Console& out) {
  out.Progress("asking the nodes of Ray for their dumps"_t);
  MSPROBE_ASSIGN_OR_RETURN(RayNodes nodes,
                           RayNodes::Connect(wanted.address, wanted.target, wanted.golden));
  for (const RayNodes::Node& node : nodes.nodes()) {
    if (!node.wrong.empty()) out.Warn("node {} compares nothing: {}"_t(node.name, node.wrong));
  }
  MSPROBE_ASSIGN_OR_RETURN(const PairedDumps paired, PairOnNodes(wanted, nodes.nodes()));
  MSPROBE_ASSIGN_OR_RETURN(RunFolder folder, RunFolder::Make("", "answers"));
  MSPROBE_RETURN_IF_ERROR(CheckFolder(wanted, CountParts(paired)));
  if (AreJoined(paired)) {
    MSPROBE_RETURN_IF_ERROR(CopyFromNodes(wanted, std::move(nodes), paired, folder.path(), out));
  } else {
    MSPROBE_RETURN_IF_ERROR(
        RayComparing(wanted, std::move(nodes), paired, std::move(folder), out).Run());
  }
  return compare::ReadParts(wanted.folder);
}

}  // namespace msprobe::cli
