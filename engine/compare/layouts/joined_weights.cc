#include "engine/compare/layouts/joined_weights.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/compare/layouts/joined_numbers.h"
#include "engine/compare/layouts/value_layout.h"
#include "engine/compare/layouts/whole_shape.h"
#include "engine/compare/model/record_keys.h"
#include "engine/dump/read/weights_file.h"
#include "engine/model/sketch_text.h"
#include "engine/model/text_arena.h"

namespace msprobe::compare::layouts {
namespace {

// The weights of a rank as leaves of a dump, so that they are joined as other values are.
std::shared_ptr<const Dump> AsDump(const std::vector<StepWeight>& weights) {
  auto dump = std::make_shared<Dump>();
  TextArena arena;
  std::string text;
  for (const StepWeight& weight : weights) {
    Leaf leaf;
    leaf.has_stats = !std::isnan(weight.norm);
    leaf.name = arena.Copy(weight.name);
    leaf.dtype = arena.Copy(weight.dtype);
    if (weight.shape) leaf.shape = dump->shapes.Of(*weight.shape);
    leaf.max_value = weight.max;
    leaf.min_value = weight.min;
    leaf.mean_value = weight.mean;
    leaf.norm_value = weight.norm;
    leaf.fingerprint = FingerprintText(arena.Copy(weight.fingerprint), &arena);
    if (weight.sketch) {
      text.clear();
      AppendSketch(&text, *weight.sketch);
      dump->sketches.push_back({static_cast<uint32_t>(dump->leaves.size()), arena.Copy(text)});
    }
    dump->leaves.push_back(leaf);
  }
  arena.Release(&dump->arena);
  return dump;
}

// The parts of each of the golden's weights that the ranks have.
class WeightParts {
 public:
  WeightParts(std::span<const RankRun> runs, std::span<const std::vector<StepWeight>> of_ranks)
      : runs_(AsRuns(runs, of_ranks)), facts_(runs_) {
    for (size_t i = 0; i < runs.size(); ++i) {
      for (size_t k = 0; k < of_ranks[i].size(); ++k) {
        parts_[runs[i].modules.Of(of_ranks[i][k].name)].push_back(
            {static_cast<int32_t>(i), static_cast<int32_t>(k)});
      }
    }
  }

  // Calls look(parts, layout, shape) for each of the golden's weights that the ranks have.
  template <typename Look>
  void Each(std::span<const StepWeight> of_golden, Look look) {
    for (const StepWeight& golden : of_golden) {
      const auto found = parts_.find(golden.name);
      if (found == parts_.end() || !golden.shape) continue;
      const Shape whole = shapes_.Of(*golden.shape);
      const ValueLayout layout = facts_.Of(found->second, {.whole = whole});
      if (!layout.places.empty() && layout.padded.empty())
        look(golden, found->second, layout, whole);
    }
  }
  std::span<const RankRun> runs() const { return runs_; }
  const LayoutFacts& facts() const { return facts_; }
  const std::map<std::string, std::vector<ValuePart>>& parts() const { return parts_; }

 private:
  static std::vector<RankRun> AsRuns(std::span<const RankRun> runs,
                                     std::span<const std::vector<StepWeight>> of_ranks) {
    std::vector<RankRun> as_runs;
    for (size_t i = 0; i < runs.size(); ++i)
      as_runs.push_back({.rank = runs[i].rank, .dump = AsDump(of_ranks[i])});
    return as_runs;
  }

  const std::vector<RankRun> runs_;
  const LayoutFacts facts_;
  std::map<std::string, std::vector<ValuePart>> parts_;
  ShapePool shapes_;
};

constexpr double kNear = 1e-5;

bool SameMoments(const JoinedNumbers& n, const StepWeight& golden) {
  const double size = std::max(std::abs(golden.max), std::abs(golden.min));
  const auto near = [](double a, double b, double by) { return std::abs(a - b) <= kNear * by; };
  return near(n.max, golden.max, size) && near(n.min, golden.min, size) &&
         near(n.mean, golden.mean, size) && near(n.norm, golden.norm, golden.norm);
}

bool SameOrder(const JoinedNumbers& n, const StepWeight& golden) {
  return std::abs(n.joined.sketch.wave - golden.sketch->wave) <= kNear * golden.norm &&
         std::abs(n.joined.sketch.rows - golden.sketch->rows) <= kNear * golden.norm;
}

// The ranks that hold each content.
std::map<std::string, std::set<size_t>> HoldersOf(
    std::span<const std::vector<StepWeight>> of_ranks) {
  std::map<std::string, std::set<size_t>> holders;
  for (size_t i = 0; i < of_ranks.size(); ++i) {
    for (const StepWeight& weight : of_ranks[i]) {
      const bool constant = weight.max == weight.min;
      if (!weight.fingerprint.empty() && !constant) holders[weight.fingerprint].insert(i);
    }
  }
  return holders;
}

}  // namespace

std::vector<StepWeight> WholeWeights(std::span<const RankRun> target,
                                     std::span<const std::vector<StepWeight>> of_target,
                                     std::span<const RankRun> golden,
                                     std::span<const std::vector<StepWeight>> of_golden,
                                     bool one_way) {
  const WeightParts a(target, of_target), b(golden, of_golden);
  std::vector<StepWeight> weights;
  for (const auto& [name, parts] : a.parts()) {
    const auto other = b.parts().find(name);
    if (other == b.parts().end()) continue;
    WholeShape whole = WholeOf(a.facts().Summarize(parts), b.facts().Summarize(other->second),
                               {.one_way = one_way});
    // The same shards on both sides, of a dimension that nobody knows.
    if (!whole.known || !whole.ordered) continue;
    StepWeight weight{.name = name};
    weight.shape = std::move(whole.extents);
    weights.push_back(std::move(weight));
  }
  return weights;
}

DividedWeights CompareDivisions(std::span<const std::string> target,
                                std::span<const std::string> golden) {
  const auto read = [](std::span<const std::string> paths) {
    std::vector<std::vector<StepWeight>> weights(paths.size());
    for (size_t i = 0; i < paths.size(); ++i) {
      const std::string folder = IsDirectory(paths[i]) ? paths[i] : DirectoryName(paths[i]);
      if (!dump::ReadStepWeights(folder, &weights[i]).ok()) weights[i].clear();
    }
    return weights;
  };
  const std::vector<RankRun> target_runs(target.size()), golden_runs(golden.size());
  const std::vector<std::vector<StepWeight>> of_target = read(target), of_golden = read(golden);
  const WeightParts a(target_runs, of_target), b(golden_runs, of_golden);
  DividedWeights divided;
  for (const auto& [name, parts] : a.parts()) {
    const auto found = b.parts().find(name);
    if (found == b.parts().end()) continue;
    ++divided.all;
    const HeldParts x = a.facts().Summarize(parts), y = b.facts().Summarize(found->second);
    const bool filled = !(x.shape == y.shape) && WholeOf(x, y, {}).known;
    // Another stage of a pipeline holds it, or more ranks do.
    const bool elsewhere = !std::equal(
        parts.begin(), parts.end(), found->second.begin(), found->second.end(),
        [](const ValuePart& mine, const ValuePart& other) { return mine.run == other.run; });
    divided.otherwise += filled || elsewhere;
  }
  // Stages that count their layers in other ways have no names in common.
  const std::map<std::string, std::set<size_t>> mine = HoldersOf(of_target),
                                                other = HoldersOf(of_golden);
  for (const auto& [content, holders] : mine) {
    const auto found = other.find(content);
    if (found == other.end()) continue;
    ++divided.all;
    divided.otherwise += holders != found->second;
  }
  return divided;
}

std::set<std::string> ReorderedModules(std::span<const RankRun> runs,
                                       std::span<const std::vector<StepWeight>> of_ranks,
                                       std::span<const StepWeight> of_golden) {
  constexpr size_t kMostShards = 5;  // whose orders are tried
  std::set<std::string> modules;
  WeightParts parts(runs, of_ranks);
  parts.Each(of_golden, [&](const StepWeight& golden, const std::vector<ValuePart>& of,
                            const ValueLayout& layout, Shape whole) {
    if (layout.kind != ValueLayout::Kind::kShards || layout.dimension < 0 || !golden.sketch ||
        layout.places.size() > kMostShards)
      return;
    const JoinedNumbers n = JoinNumbers(layout, of, parts.runs(), whole, /*factor=*/1);
    if (!n.known || !n.joined.wave || SameOrder(n, golden) || !SameMoments(n, golden)) return;
    // Whole shards in another order are an error, which nothing must hide.
    std::vector<size_t> order(layout.places.size());
    std::iota(order.begin(), order.end(), size_t{0});
    do {
      ValueLayout other = layout;
      for (size_t i = 0; i < order.size(); ++i) other.places[i] = layout.places[order[i]];
      if (SameOrder(JoinNumbers(other, of, parts.runs(), whole, 1), golden)) return;
    } while (std::next_permutation(order.begin(), order.end()));
    const size_t dot = golden.name.rfind('.');
    modules.insert(dot == std::string::npos ? "" : golden.name.substr(0, dot));
  });
  return modules;
}

std::vector<StepWeight> JoinWeights(std::span<const RankRun> runs,
                                    std::span<const std::vector<StepWeight>> of_ranks,
                                    std::span<const StepWeight> of_golden) {
  std::vector<StepWeight> joined;
  WeightParts parts(runs, of_ranks);
  parts.Each(of_golden, [&](const StepWeight& golden, const std::vector<ValuePart>& of,
                            const ValueLayout& layout, Shape whole) {
    const ValuePart& first = of[layout.places[0][0]];
    StepWeight weight = of_ranks[first.run][first.leaf];
    weight.name = golden.name;
    weight.shape = golden.shape;
    if (layout.kind != ValueLayout::Kind::kWhole) {
      const JoinedNumbers n = JoinNumbers(layout, of, parts.runs(), whole, /*factor=*/1);
      weight.fingerprint.clear();
      AppendHex(&weight.fingerprint, n.content, 16);
      weight.max = n.max;
      weight.min = n.min;
      weight.mean = n.mean;
      weight.norm = n.norm;
      weight.sketch.reset();
      if (n.joined.rows && n.joined.squares && n.joined.wave) weight.sketch = n.joined.sketch;
    }
    joined.push_back(std::move(weight));
  });
  return joined;
}

}  // namespace msprobe::compare::layouts
