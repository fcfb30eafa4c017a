#include "engine/compare/layouts/joined_weights.h"

#include <cmath>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine/base/text.h"
#include "engine/compare/layouts/joined_numbers.h"
#include "engine/compare/layouts/value_layout.h"
#include "engine/compare/model/record_keys.h"
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

}  // namespace

std::vector<StepWeight> JoinWeights(std::span<const RankRun> runs,
                                    std::span<const std::vector<StepWeight>> of_ranks,
                                    std::span<const StepWeight> of_golden) {
  std::vector<RankRun> as_runs;
  std::unordered_map<std::string, std::vector<ValuePart>> parts;
  for (size_t i = 0; i < runs.size(); ++i) {
    as_runs.push_back({.rank = runs[i].rank, .dump = AsDump(of_ranks[i])});
    for (size_t k = 0; k < of_ranks[i].size(); ++k) {
      parts[runs[i].modules.Of(of_ranks[i][k].name)].push_back(
          {static_cast<int32_t>(i), static_cast<int32_t>(k)});
    }
  }
  const LayoutFacts facts(as_runs);
  ShapePool shapes;
  std::vector<StepWeight> joined;
  for (const StepWeight& golden : of_golden) {
    const auto found = parts.find(golden.name);
    if (found == parts.end() || !golden.shape) continue;
    const std::vector<ValuePart>& of = found->second;
    const Shape whole = shapes.Of(*golden.shape);
    TextArena arena;
    Leaf leaf;
    leaf.fingerprint = FingerprintText(golden.fingerprint, &arena);
    const ValueLayout layout = facts.Of(of, {.whole = whole, .content = ContentKey(leaf)});
    if (layout.places.empty()) continue;
    StepWeight weight = of_ranks[of[layout.places[0][0]].run][of[layout.places[0][0]].leaf];
    weight.name = golden.name;
    weight.shape = golden.shape;
    if (layout.kind != ValueLayout::Kind::kWhole) {
      const JoinedNumbers n = JoinNumbers(layout, of, as_runs, whole, /*factor=*/1);
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
  }
  return joined;
}

}  // namespace msprobe::compare::layouts
