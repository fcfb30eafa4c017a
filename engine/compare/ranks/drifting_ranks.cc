#include "engine/compare/ranks/drifting_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>
#include <utility>

#include "engine/base/text.h"
#include "engine/dump/read/weights_file.h"

namespace msprobe::compare {
namespace {

bool Same(const StepWeight& a, const StepWeight& b) {
  if (!a.fingerprint.empty() && !b.fingerprint.empty()) return a.fingerprint == b.fingerprint;
  const auto same = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  return same(a.max, b.max) && same(a.min, b.min) && same(a.mean, b.mean) && same(a.norm, b.norm);
}

bool IsKnown(const StepWeight& weight) {
  return !weight.fingerprint.empty() || !std::isnan(weight.norm);
}

// The trained weights with which the ranks began one step.
struct Step {
  int32_t step = -1;
  std::vector<const RankResult*> results;
  std::vector<std::vector<StepWeight>> weights;  // of each result; empty: not known
};

std::vector<Step> StepsOf(std::span<const RankResult> results, bool target) {
  std::vector<Step> steps;
  for (const RankResult& r : results) {
    if (!r.failed.ok()) continue;
    if (steps.empty() || steps.back().step != r.step) steps.push_back({.step = r.step});
    std::vector<StepWeight> weights;
    if (!dump::ReadStepWeights(target ? r.target : r.golden, &weights).ok()) weights.clear();
    std::erase_if(weights, [](const StepWeight& w) { return !w.trained || !IsKnown(w); });
    steps.back().results.push_back(&r);
    steps.back().weights.push_back(std::move(weights));
  }
  std::erase_if(steps, [](const Step& step) {
    return step.results.size() < 2 ||
           std::any_of(step.weights.begin(), step.weights.end(),
                       [](const auto& weights) { return weights.empty(); });
  });
  return steps;
}

// The names of the weights that all ranks have and hold alike, or do not, in the order of the file.
std::vector<std::string> Shared(const Step& step, bool alike) {
  std::vector<std::string> names;
  std::unordered_map<std::string_view, std::pair<size_t, bool>> others;  // how many; all the same
  std::unordered_map<std::string_view, const StepWeight*> first;
  for (const StepWeight& weight : step.weights[0]) first.emplace(weight.name, &weight);
  for (size_t i = 1; i < step.weights.size(); ++i) {
    for (const StepWeight& weight : step.weights[i]) {
      const auto known = first.find(weight.name);
      if (known == first.end()) continue;
      auto& [count, same] = others.try_emplace(weight.name, 0, true).first->second;
      ++count;
      same = same && Same(weight, *known->second);
    }
  }
  for (const StepWeight& weight : step.weights[0]) {
    const auto other = others.find(weight.name);
    if (other != others.end() && other->second.first + 1 == step.weights.size() &&
        other->second.second == alike)
      names.push_back(weight.name);
  }
  return names;
}

// The weights that the optimizers of the last step left, in the form of the next step's file.
Step BehindLast(const Step& last, bool target) {
  Step step{.step = last.step, .results = last.results};
  for (const RankResult* r : last.results) {
    std::vector<StepWeight>& weights = step.weights.emplace_back();
    for (const StepWeights::Weight& weight : r->weights.end) {
      const auto of = [&](const BothSides& both) { return target ? both.target : both.golden; };
      weights.push_back({.name = weight.name,
                         .trained = true,
                         .max = of(weight.max),
                         .min = of(weight.min),
                         .norm = of(weight.norm)});
    }
  }
  return step;
}

std::optional<Drift> DriftOf(std::span<const RankResult> results, bool target) {
  std::vector<Step> steps = StepsOf(results, target);
  if (steps.empty()) return std::nullopt;
  steps.push_back(BehindLast(steps.back(), target));
  for (size_t i = 0; i + 1 < steps.size(); ++i) {
    const std::vector<std::string> before = Shared(steps[i], true),
                                   after = Shared(steps[i + 1], false);
    for (const std::string& name : before) {
      if (std::find(after.begin(), after.end(), name) == after.end()) continue;
      Drift drift{.in_target = target, .after_step = steps[i].step, .parameter = name};
      for (const RankResult* r : steps[i].results) drift.ranks.push_back(r->rank);
      return drift;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Drift> FindDrift(std::span<const RankResult> results) {
  std::optional<Drift> target = DriftOf(results, true), golden = DriftOf(results, false);
  if (target && golden && target->after_step == golden->after_step) return std::nullopt;
  if (!target || (golden && golden->after_step < target->after_step)) return golden;
  return target;
}

Message DescribeDrift(const Drift& drift) {
  return "after step {} the ranks of the {} no longer have the same weights, those of the {} have: "
         "gradients or weights were not exchanged between the ranks, or one rank changed its own; "
         "the first is `{}`"_t(drift.after_step, drift.in_target ? "target"_t : "golden"_t,
                               drift.in_target ? "golden"_t : "target"_t, drift.parameter);
}

std::string DriftJson(const Drift& drift) {
  std::string json = fmt::format("{{\"run\": \"{}\", \"after_step\": {}, \"parameter\": ",
                                 drift.in_target ? "target" : "golden", drift.after_step);
  AppendJsonString(&json, drift.parameter);
  json += fmt::format(", \"ranks\": [\"{}\"], \"why\": ", fmt::join(drift.ranks, "\", \""));
  AppendJsonString(&json, DescribeDrift(drift).English());
  return json + '}';
}

}  // namespace msprobe::compare
