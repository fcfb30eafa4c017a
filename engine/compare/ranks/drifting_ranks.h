// Ranks that hold the same weights (data parallelism) and drift apart in one of the two runs: what
// they should have exchanged, gradients or weights, they have not.
//
//   const std::optional<Drift> drift = FindDrift(results);
//   if (drift) Print("{}", DescribeDrift(*drift));
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/compare/ranks/rank_result.h"

namespace msprobe::compare {

struct Drift {
  bool in_target = true;       // which run
  int32_t after_step = -1;     // the ranks began this step with the same weights
  std::string parameter;       // the first one, in the order of weights.json
  std::vector<int32_t> ranks;  // of this step

  // Whether the first divergence of the result is this update, whose sentence has it.
  bool IsSaidBy(const RankResult& result) const { return result.wrong_update_after == after_step; }
};

// The first step behind which parameters that were the same on all ranks no longer are, in one run
// only. By weights.json of the steps; behind the last step, by what its optimizers left. nullopt:
// there is none, or nothing tells. `results` are ordered by step.
std::optional<Drift> FindDrift(std::span<const RankResult> results);

Message DescribeDrift(const Drift& drift);
// {"run": "target", "after_step": 1, "parameter": "fc.weight", "ranks": ["0", "1"], "why": "..."}
std::string DriftJson(const Drift& drift);

}  // namespace msprobe::compare
