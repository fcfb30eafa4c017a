// What a report on many ranks and steps says beside their verdicts.
#pragma once

#include <span>

#include "engine/compare/explain/findings.h"
#include "engine/compare/ranks/rank_result.h"

namespace msprobe::compare {

// The findings of `first`, one of `results`: the pair of dumps in which the first wrong number
// appears. Null: no number is wrong; the sums over all pairs that could be compared, with the names
// and sentences of the first one that has any. With which weights a run began is said by its
// first dump.
//
//   const Findings found = FindingsOfRanks(results, nullptr);
//   Print("{} values are equal in all ranks and steps", found.summary.rows[0]);
Findings FindingsOfRanks(std::span<const RankResult> results, const RankResult* first);

}  // namespace msprobe::compare
