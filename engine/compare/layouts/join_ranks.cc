#include "engine/compare/layouts/join_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "engine/base/file.h"
#include "engine/compare/align/align.h"
#include "engine/compare/layouts/joined_dump.h"
#include "engine/compare/layouts/joined_weights.h"
#include "engine/compare/measure/run_start.h"
#include "engine/compare/model/record_keys.h"
#include "engine/dump/write/parallel_layout.h"
#include "engine/model/names.h"

namespace msprobe::compare::layouts {
namespace {

using Kind = ValueLayout::Kind;

// A factor is one of the run if so many of the gradients have it.
constexpr double kShareOfFactor = 0.3, kNearFactor = 2e-3;
// How far a sum over ranks is off at most, where a sentence says that it is the golden's.
constexpr double kNearSum = 1e-4;

class Joining {
 public:
  Joining(std::span<const RankRun> runs, const Dump& golden, const std::string& path,
          const std::set<std::string>& reordered, const Dump* joined_before)
      : runs_(runs),
        golden_(golden),
        facts_(runs),
        reordered_(reordered),
        joined_(runs, JoinCalls(runs), golden, path) {
    joined_.PassThrough();
    FindPartners(joined_before == nullptr ? joined_.dump() : *joined_before);
    FindBackward();
    // What wraps a model for that (DistributedDataParallel, fully_shard) is in the header.
    divided_ = std::any_of(runs.begin(), runs.end(), [](const RankRun& run) {
      const Result<dump::ParallelLayout> layout = dump::ParallelLayoutOf(*run.dump);
      return layout.ok() && !layout->wrappers.empty();
    });
  }

  JoinedRun Run() {
    const size_t leaves = joined_.values().size();
    std::vector<ValueLayout> layouts(leaves);
    for (size_t i = 0; i < leaves; ++i) {
      if (partner_[i] >= 0) layouts[i] = LayoutOf(i, /*again=*/false);
    }
    factor_ = FactorOfGradients(layouts);
    divided_ = divided_ || factor_ > 1;
    for (size_t i = 0; i < leaves; ++i) {
      if (partner_[i] < 0 || !IsTensor(i)) continue;
      const uint64_t content = ContentOf(i);
      if (layouts[i].kind == Kind::kDivergent) {
        const auto found = known_.find(content);
        const bool adds = found != known_.end() && Adds(layouts[found->second]);
        if (adds || divided_ || (IsLoss(i) && TakesParts(i, layouts)))
          layouts[i] = LayoutOf(i, /*again=*/true);
      }
      known_.emplace(content, i);
    }
    for (size_t i = 0; i < leaves; ++i) Fill(i, &layouts);
    JoinedRun run;
    Describe(layouts, &run.notes);
    run.dump = joined_.Take();
    return run;
  }

 private:
  // `target` has the calls and leaves of the joined dump.
  void FindPartners(const Dump& target) {
    partner_.assign(joined_.values().size(), -1);
    CompareOptions options;
    for (const Row& row : AlignDumps(target, golden_, options).rows) {
      if (row.target >= 0 && row.golden >= 0) partner_[row.target] = row.golden;
    }
  }

  const Leaf& LeafAt(size_t i) { return joined_.dump().leaves[i]; }
  const Record& RecordAt(size_t i) { return joined_.dump().records[LeafAt(i).record]; }
  bool IsTensor(size_t i) { return LeafAt(i).kind == LeafKind::kTensor; }
  // A number of a forward call: each rank has that of its part of the batch.
  bool IsLoss(size_t i) {
    return LeafAt(i).shape.elements() == 1 && RecordAt(i).direction == Direction::kForward &&
           !IsOptimizerCall(RecordAt(i).api);
  }
  static bool Adds(const ValueLayout& layout) {
    return layout.kind == Kind::kSum || layout.kind == Kind::kMean;
  }
  // Whether its call takes a shard, or such a number.
  bool TakesParts(size_t i, const std::vector<ValueLayout>& layouts) {
    const Record& record = RecordAt(i);
    for (uint32_t k = record.first_leaf; k < record.first_leaf + record.leaf_count; ++k) {
      const bool part =
          layouts[k].kind == Kind::kShards || (Adds(layouts[k]) && LeafAt(k).shape.elements() == 1);
      if (k != i && part) return true;
    }
    return false;
  }

  // `again`: what other ranks have other elements of. Where each rank has a part of the batch, these are
  // losses of its part, and gradients of parameters, of which each rank has an addend.
  ValueLayout LayoutOf(size_t i, bool again) {
    if (!IsTensor(i)) return {};
    const Leaf& golden = golden_.leaves[partner_[i]];
    return facts_.Of(
        joined_.values()[i],
        {.whole = golden.shape,
         .golden = &golden,
         .averaged = again && factor_ > 1 && IsLoss(i) && LeafAt(i).record < first_backward_,
         .added = again && (IsLoss(i) || IsBackward(RecordAt(i).direction))});
  }

  uint64_t ContentOf(size_t i) const {
    uint64_t hash = 1;
    for (const ValuePart& part : joined_.values()[i]) {
      const uint64_t content = ContentKey(facts_.LeafOf(part));
      hash = (hash ^ content ^ static_cast<uint64_t>(part.run + 1) * 0x9e3779b97f4a7c15) *
             0xff51afd7ed558ccd;
      hash ^= hash >> 29;
    }
    return hash;
  }

  // Of a value in a module whose weights lie in pieces nothing tells the order of its shards; nor of what
  // is made of it.
  bool IsReordered(size_t i) {
    if (reordered_.empty()) return false;
    const Record& record = RecordAt(i);
    if (unordered_.contains(ContentOf(i))) return true;
    if (IsOptimizerCall(record.api)) {
      return std::any_of(reordered_.begin(), reordered_.end(), [&](const std::string& module) {
        return LeafAt(i).name.view().find("." + module + ".") != std::string_view::npos;
      });
    }
    for (uint32_t k = record.first_leaf; k < i; ++k) {
      if (unordered_.contains(ContentOf(k))) return true;
    }
    const std::string_view around = record.is_module         ? record.api.view()
                                    : !record.parent.empty() ? WithoutCall(record.parent)
                                                             : record.module.view();
    const std::string path(PathOfModule(around));
    return std::any_of(reordered_.begin(), reordered_.end(), [&](const std::string& module) {
      return path == module || path.starts_with(module + ".") || module.starts_with(path + ".");
    });
  }

  void FindBackward() {
    const std::vector<Record>& records = joined_.dump().records;
    const auto first = std::find_if(records.begin(), records.end(), [](const Record& record) {
      return record.direction == Direction::kBackward;
    });
    first_backward_ = static_cast<uint32_t>(first - records.begin());
  }

  static bool IsBackward(Direction direction) {
    return direction == Direction::kBackward || direction == Direction::kParameterGrad;
  }

  double RatioOf(size_t i, const ValueLayout& layout) {
    const Leaf& golden = golden_.leaves[partner_[i]];
    const Shape whole =
        layout.padded.empty() ? golden.shape : joined_.dump().shapes.Of(layout.padded);
    const JoinedNumbers n = JoinNumbers(layout, joined_.values()[i], runs_, whole, /*factor=*/1);
    return n.known && golden.norm_value > 0 ? n.norm / golden.norm_value : 0;
  }

  // What each gradient is a multiple of: a rank that computes the mean over its part of the batch has
  // as many times the golden's gradients as there are parts. 1: they are as the golden's.
  double FactorOfGradients(const std::vector<ValueLayout>& layouts) {
    std::vector<double> ratios;
    size_t parts = 1;
    for (size_t i = 0; i < layouts.size(); ++i) {
      const ValueLayout& layout = layouts[i];
      if (layout.kind != Kind::kWhole && layout.kind != Kind::kShards) continue;
      const Leaf& golden = golden_.leaves[partner_[i]];
      if (RecordAt(i).direction == Direction::kForward && layout.kind == Kind::kShards)
        parts = std::max(parts, layout.places.size());
      if (RecordAt(i).direction != Direction::kBackward || golden.shape.elements() < 4) continue;
      if (const double ratio = RatioOf(i, layout); std::isfinite(ratio) && ratio > 0)
        ratios.push_back(ratio);
    }
    const auto near = [&](double factor) {
      return std::count_if(ratios.begin(), ratios.end(), [&](double ratio) {
        return std::abs(ratio / factor - 1) < kNearFactor;
      });
    };
    double best = 1;
    for (size_t factor = 2; factor <= parts; ++factor) {
      if (near(static_cast<double>(factor)) > near(best)) best = static_cast<double>(factor);
    }
    const auto share = static_cast<double>(near(best)) / std::max<double>(1, ratios.size());
    return share > kShareOfFactor ? best : 1;
  }

  // Gradients that were added up over the ranks already have no factor any more.
  double FactorAt(size_t i, const ValueLayout& layout) {
    const Direction direction = RecordAt(i).direction;
    if (factor_ == 1 || !IsBackward(direction)) return 1;
    if (layout.kind == Kind::kUnknown || layout.kind == Kind::kDivergent) return 1;
    if (partner_[i] < 0) return factor_;
    if (layout.kind == Kind::kWhole &&
        ContentKey(LeafAt(i)) == ContentKey(golden_.leaves[partner_[i]]))
      return 1;
    if (direction != Direction::kParameterGrad || layout.kind == Kind::kSum) return factor_;
    const double ratio = RatioOf(i, layout);
    return std::abs(ratio - factor_) < std::abs(ratio - 1) ? factor_ : 1;
  }

  void Fill(size_t i, std::vector<ValueLayout>* layouts) {
    if (!IsTensor(i)) {
      joined_.Keep(i);
      return;
    }
    ValueLayout& layout = (*layouts)[i];
    Shape whole = facts_.LeafOf(joined_.values()[i].front()).shape;
    if (partner_[i] >= 0) {
      if (layout.kind != Kind::kUnknown) whole = golden_.leaves[partner_[i]].shape;
    } else if (const auto found = known_.find(ContentOf(i));
               found != known_.end() &&
               joined_.values()[found->second].size() == joined_.values()[i].size()) {
      layout = (*layouts)[found->second];
      if (layout.kind != Kind::kUnknown) whole = golden_.leaves[partner_[found->second]].shape;
    } else {
      layout = facts_.Of(joined_.values()[i], {.whole = Shape()});
    }
    if (!layout.padded.empty()) whole = joined_.dump().shapes.Of(layout.padded);
    if (layout.kind == Kind::kUnknown) layout.places = {{0}};
    if (layout.kind == Kind::kShards && IsReordered(i)) {
      layout.dimension = -1;
      unordered_.insert(ContentOf(i));
    }
    joined_.Set(i, layout, whole, FactorAt(i, layout), AddsUp(i, layout));
  }

  // Whether what other ranks have other elements of would be the golden's if it were added up.
  bool AddsUp(size_t i, const ValueLayout& layout) {
    if (layout.kind != Kind::kDivergent || partner_[i] < 0) return false;
    const Leaf& golden = golden_.leaves[partner_[i]];
    const std::vector<ValuePart>& parts = joined_.values()[i];
    ValueLayout sum{.kind = Kind::kSum, .places = {{}}};
    for (size_t k = 0; k < parts.size(); ++k) sum.places[0].push_back(static_cast<int32_t>(k));
    const JoinedNumbers n = JoinNumbers(sum, parts, runs_, golden.shape, factor_);
    const double size = std::max(n.norm, golden.norm_value);
    const std::optional<kernels::Sketch> sketch = golden_.SketchOf(partner_[i]);
    return n.known && n.joined.rows && sketch &&
           std::abs(n.joined.sketch.rows - sketch->rows) <= kNearSum * size &&
           std::abs(n.joined.sketch.wave - sketch->wave) <= kNearSum * size;
  }

  void Describe(const std::vector<ValueLayout>& layouts, std::vector<std::string>* notes) {
    std::map<Kind, int64_t> counts;
    for (size_t i = 0; i < layouts.size(); ++i) {
      if (IsTensor(i)) ++counts[layouts[i].kind];
    }
    notes->push_back(
        fmt::format("{} ranks were joined to one run: {} values are whole on each rank that "
                    "has them, {} "
                    "are joined of shards, {} are sums over ranks",
                    runs_.size(), counts[Kind::kWhole], counts[Kind::kShards],
                    counts[Kind::kSum] + counts[Kind::kMean]));
    if (const int64_t open = counts[Kind::kDivergent] + counts[Kind::kUnknown]; open > 0)
      notes->push_back(fmt::format(
          "{} values differ between ranks, and nothing says how they belong together", open));
    if (factor_ != 1)
      notes->push_back(
          fmt::format("before they are added up, the gradients of each rank are {} times the "
                      "golden's: it computes "
                      "a mean over its part of the batch",
                      factor_));
    for (const RankRun& run : runs_) {
      for (const auto& [own, other] : run.modules.renamed())
        notes->push_back(
            fmt::format("module `{}` of rank {} is the golden's `{}`", own, run.rank, other));
    }
  }

  std::span<const RankRun> runs_;
  const Dump& golden_;
  const LayoutFacts facts_;
  const std::set<std::string>& reordered_;  // modules whose weights lie in pieces
  JoinedDump joined_;
  std::vector<int32_t> partner_;  // of each leaf: the golden's
  std::unordered_map<uint64_t, size_t>
      known_;                               // a leaf with a partner, by the contents of all ranks
  std::unordered_set<uint64_t> unordered_;  // contents of all ranks
  double factor_ = 1;
  uint32_t first_backward_ = 0;  // record
  bool divided_ = false;         // each rank has a part of the batch
};

}  // namespace

Result<JoinedRun> JoinRanks(std::deque<RankDump> ranks, const Dump& golden,
                            const std::string& path) {
  // A run of one process has a folder without a number, or says that it was alone.
  const size_t processes = ProcessesOf(golden);
  const bool has_number = NumberAfter(BaseName(golden.folder), "rank") >= 0;
  if (processes > 1 || (processes == 0 && has_number)) {
    return InvalidArgument()
        .At(golden.path)
        .Expected("the run of one process, with which all ranks together are compared")
        .Found(processes > 1 ? fmt::format("one rank of {}", processes)
                             : "a rank of a run that does not say how many it had")
        .Hint(
            "record the golden on one process, or both runs on the same number of ranks; if they "
            "had "
            "that, and one recorded only some, --common compares the ranks that both have");
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
  }
  const bool any = std::any_of(runs.begin(), runs.end(), [](const RankRun& run) {
    return std::any_of(run.dump->leaves.begin(), run.dump->leaves.end(), [](const Leaf& leaf) {
      return leaf.kind == LeafKind::kTensor && leaf.has_stats;
    });
  });
  if (!any) {
    return InvalidArgument()
        .At(path)
        .Expected("statistics of tensors, of which those of the whole run can be made")
        .Found("none")
        .Hint("record with the task statistics or tensor");
  }
  const std::set<std::string> reordered = ReorderedModules(runs, before, of_golden);
  // First calls find their partners by the shapes and numbers of parts, then by those of the whole.
  const JoinedRun first = Joining(runs, golden, path, reordered, nullptr).Run();
  JoinedRun joined = Joining(runs, golden, path, reordered, &first.dump).Run();
  joined.dump.began_with = JoinWeights(runs, before, of_golden);
  joined.dump.left_behind = JoinWeights(runs, after, of_golden);
  return joined;
}

}  // namespace msprobe::compare::layouts
