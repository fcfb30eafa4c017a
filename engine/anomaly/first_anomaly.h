// The first anomaly over the ranks of one step: which rank made the first NaN or infinity, and the
// exchanges that brought it to others.
//
//   FirstAnomalies found = FindFirstAnomalies(std::move(ranks));      // rank_anomaly.h
//   for (const size_t i : found.answer)
//     Print("{}: {}", found.RankOf(i).label.Shown(), found.RankOf(i).name);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/anomaly/rank_anomaly.h"
#include "engine/base/messages/message.h"
#include "engine/compare/ranks/rank_origin.h"

namespace msprobe::anomaly {

enum class Phase : uint8_t {
  kNone,         // no rank has an anomaly
  kBeforeFirst,  // before the first exchange of its rank
  kBetween,      // among exchanges: the one with the fewest exchanges before it
  kAfterLast,    // after the last exchange
};

struct FirstAnomalies {
  std::vector<RankAnomaly> ranks;
  // Where such numbers begin, the earliest first. RankOrigin::trace is an index into `ranks`.
  compare::RankOrigins found;
  Phase phase = Phase::kNone;
  // Indices into found.origins. Before the first exchange and after the last one no rank knows of
  // the others: the answer has all ranks that have an anomaly there. Else it is one call.
  std::vector<size_t> answer;

  const RankAnomaly& RankOf(size_t origin) const { return ranks[found.origins[origin].trace]; }
};

FirstAnomalies FindFirstAnomalies(std::vector<RankAnomaly> ranks);

// "before the first exchange", ...; "" for kNone.
std::string_view PhaseName(Phase phase);

// Why origin `origin` is where the numbers begin: a sentence for the reader.
Message DescribeWhy(const FirstAnomalies& found, size_t origin);

// "rank 1 sent NaN to ranks 0, 2 in Distributed.all_reduce.0.forward (train.py:9 in f: ...)", for
// each exchange that brought a rank its first such number, in their order.
std::vector<Message> DescribeTravel(const FirstAnomalies& found);

}  // namespace msprobe::anomaly
