#include "cli/cluster/copy_on_ray.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "cli/cluster/node_answer.h"
#include "cli/inputs/part_flag.h"
#include "engine/base/file.h"
#include "engine/compare/ranks/compared_part.h"
#include "engine/compare/ranks/rank_copy.h"

namespace msprobe::cli {
namespace {

constexpr size_t kMostLostNodes = 3;  // nodes, of one dump: perhaps it takes all their memory

class Copying {
 public:
  Copying(const RayComparison& wanted, RayNodes nodes, const PairedDumps& paired,
          std::string answers, Console& out)
      : wanted_(wanted), nodes_(std::move(nodes)), answers_(std::move(answers)), out_(out) {
    for (const DumpToCopy& dump : DumpsToCopy(paired)) {
      ranks_.insert(dump.rank);
      dumps_.push_back({dump, {.path = dump.path}, NodesWith(dump.path)});
      waiting_.insert(dumps_.size() - 1);
    }
    for (size_t n = 0; n < nodes_.nodes().size(); ++n) {
      if (nodes_.nodes()[n].wrong.empty()) free_.insert(n);
    }
    part_ = {.count = static_cast<int64_t>(ranks_.size()),
             .target = wanted.target,
             .golden = wanted.golden,
             .left_out = paired.left_out,
             .joined = PlacesOf(paired),
             .words = wanted.flags.words,
             .named = wanted.flags.named};
  }

  Status Run() {
    for (Dump& dump : dumps_) Fail("the comparison was stopped before"_t, &dump);
    for (const int rank : ranks_) MSPROBE_RETURN_IF_ERROR(Write(rank));
    for (;;) {
      MSPROBE_RETURN_IF_ERROR(FailWithoutNode());
      StartFree();
      if (running_.empty()) return Status::Ok();
      out_.ProgressOf("{} of {} dumps copied"_t(done_, dumps_.size()), done_, dumps_.size());
      const Result<RayNodes::Ended> ended = nodes_.WaitForOne();
      if (!ended.ok()) return FailAll(ended.status().AsMessage());
      MSPROBE_RETURN_IF_ERROR(End(*ended));
    }
  }

 private:
  struct Dump {
    DumpToCopy what;
    compare::RankCopy copy;
    std::set<size_t> nodes;  // that have it
    size_t lost = 0;         // nodes
    std::string lost_nodes = {};
    bool done = false;
  };

  std::set<size_t> NodesWith(const std::string& path) const {
    std::set<size_t> with;
    for (size_t n = 0; n < nodes_.nodes().size(); ++n) {
      const RayNodes::Node& node = nodes_.nodes()[n];
      const auto has = [&](const FoundDumps& found) {
        return std::ranges::find(found.dumps.dumps, path, &dump::DumpLocation::path) !=
                   found.dumps.dumps.end() ||
               (found.dumps.kind == DumpsBelow::Kind::kFile && found.dumps.path == path);
      };
      if (node.wrong.empty() && (has(node.target) || has(node.golden))) with.insert(n);
    }
    return with;
  }

  std::string FileOf(size_t dump) const {
    return JoinPath(answers_, fmt::format("answer_{}", dump));
  }

  // A rank is a part. It is complete with its last dump.
  Status Write(int rank) {
    part_.index = std::distance(ranks_.begin(), ranks_.find(rank)) + 1;
    part_.copies.clear();
    for (const Dump& dump : dumps_) {
      if (dump.what.rank == rank) part_.copies.push_back(dump.copy);
    }
    return compare::WritePart(part_, wanted_.folder);
  }

  Status Done(Dump* dump) {
    dump->done = true;
    ++done_;
    return Write(dump->what.rank);
  }

  void Fail(const Message& why, Dump* dump) const {
    const auto part = std::distance(ranks_.begin(), ranks_.find(dump->what.rank)) + 1;
    std::string flags;
    for (const std::string& word : part_.words) flags += " " + word;
    dump->copy.failed = Unsupported("not compared: {}"_t(why))
                            .Hint(
                                "msprobe compare {} {}{} --part {}/{} -o {}, then: msprobe "
                                "merge_result -i {} -o {}"_t(wanted_.target, wanted_.golden, flags,
                                                             part, part_.count, wanted_.folder,
                                                             wanted_.folder, wanted_.folder));
  }

  Status FailWithoutNode() {
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      Dump& dump = dumps_[*at];
      if (!dump.nodes.empty()) {
        ++at;
        continue;
      }
      const std::string& path = dump.what.path;
      Fail(dump.lost_nodes.empty() ? "no node has {}"_t(path)
                                   : "the node that has {} was lost: {}"_t(path, dump.lost_nodes),
           &dump);
      at = waiting_.erase(at);
      MSPROBE_RETURN_IF_ERROR(Done(&dump));
    }
    return Status::Ok();
  }

  // The cluster is gone.
  Status FailAll(const Message& why) {
    for (Dump& dump : dumps_) {
      if (dump.done) continue;
      Fail(why, &dump);
      MSPROBE_RETURN_IF_ERROR(Done(&dump));
    }
    return Status::Ok();
  }

  void StartFree() {
    for (auto node = free_.begin(); node != free_.end();) {
      const auto its = std::ranges::find_if(
          waiting_, [&](size_t dump) { return dumps_[dump].nodes.contains(*node); });
      if (its == waiting_.end()) {
        ++node;
        continue;
      }
      std::vector<std::string> paths;
      for (const compare::FileToCopy& file : compare::FilesToCopy(dumps_[*its].what.path))
        paths.push_back(file.path);
      nodes_.Start({.task = *its, .node = *node, .paths = std::move(paths), .file = FileOf(*its)});
      running_.emplace(*its, *node);
      waiting_.erase(its);
      node = free_.erase(node);
    }
  }

  Status End(const RayNodes::Ended& ended) {
    const auto running = running_.find(ended.task);
    if (running == running_.end()) return Internal("a task ended that was not started"_t);
    const size_t node = running->second;
    Dump& dump = dumps_[ended.task];
    running_.erase(running);
    const std::string& name = nodes_.nodes()[node].name;
    if (ended.end == RayNodes::End::kLost) {
      out_.Warn("node {} was lost: {}"_t(name, ended.said));
      for (Dump& each : dumps_) {
        if (each.nodes.erase(node) > 0)
          each.lost_nodes += (each.lost_nodes.empty() ? "" : ", ") + name;
      }
      if (++dump.lost >= kMostLostNodes) dump.nodes.clear();
      waiting_.insert(ended.task);
      return Status::Ok();
    }
    free_.insert(node);
    Message why = ended.said;
    if (ended.end == RayNodes::End::kAnswered) {
      Result<compare::RankCopy> copy =
          TakeCopy(FileOf(ended.task), dump.what.path, wanted_.folder, dump.what.place);
      MSPROBE_RETURN_IF_ERROR(RemoveFile(FileOf(ended.task)));
      if (copy.ok()) {
        dump.copy = *std::move(copy);
        return Done(&dump);
      }
      why = copy.status().AsMessage();
    }
    Fail("node {}: {}"_t(name, why), &dump);
    return Done(&dump);
  }

  const RayComparison& wanted_;
  RayNodes nodes_;
  const std::string answers_;
  Console& out_;
  std::set<int> ranks_;
  std::vector<Dump> dumps_;
  compare::ComparedPart part_;        // what all parts have alike, and the one that is written
  std::set<size_t> waiting_, free_;   // dumps; nodes
  std::map<size_t, size_t> running_;  // the node of each dump
  size_t done_ = 0;
};

}  // namespace

Status CopyFromNodes(const RayComparison& wanted, RayNodes nodes, const PairedDumps& paired,
                     const std::string& answers, Console& out) {
  return Copying(wanted, std::move(nodes), paired, answers, out).Run();
}

}  // namespace msprobe::cli
