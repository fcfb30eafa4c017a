#include "engine/anomaly/first_anomaly.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace msprobe::anomaly {
namespace {

Message Ranks(std::span<const int32_t> ranks) {
  const Message list(compare::RankList(ranks));
  return ranks.size() == 1 ? "rank {}"_t(list) : "ranks {}"_t(list);
}

// The kinds of numbers that rank `rank` holds in its first call with such a number.
Message KindsOn(const FirstAnomalies& found, int32_t rank) {
  for (const RankAnomaly& each : found.ranks) {
    if (each.trace.rank != rank) continue;
    ValueKinds kinds;
    for (const WrongValue& value : each.values) kinds.Add(value.kinds);
    return KindsWord(kinds);
  }
  return {};
}

Message DescribeExchange(const compare::RankOrigin& origin) {
  if (!origin.not_known.empty()) {
    return "it came with this exchange; what {} gave is not recorded here"_t(
        Ranks(origin.not_known));
  }
  return "every rank gave finite numbers to this exchange, and its result is not finite"_t;
}

}  // namespace

FirstAnomalies FindFirstAnomalies(std::vector<RankAnomaly> ranks) {
  FirstAnomalies result;
  result.ranks = std::move(ranks);
  std::vector<compare::RankTrace> traces;
  for (const RankAnomaly& rank : result.ranks) traces.push_back(rank.trace);
  result.found = compare::FindOrigins(traces);
  std::vector<compare::RankOrigin>& origins = result.found.origins;
  if (origins.empty()) return result;
  const auto place = [&](const compare::RankOrigin& o) {
    return std::tuple(o.exchanges_before, o.in_exchange, result.ranks[o.trace].behind_exchange);
  };
  std::stable_sort(origins.begin(), origins.end(),
                   [&](const auto& a, const auto& b) { return place(a) < place(b); });
  std::vector<size_t> before, after;
  for (size_t i = 0; i < origins.size(); ++i) {
    if (origins[i].in_exchange) continue;
    if (origins[i].exchanges_before == 0) before.push_back(i);
    if (!result.RankOf(i).exchange_follows) after.push_back(i);
  }
  if (!before.empty()) {
    result.phase = Phase::kBeforeFirst;
    result.answer = before;
  } else if (after.size() == origins.size()) {
    result.phase = Phase::kAfterLast;
    result.answer = after;
  } else {
    result.phase = Phase::kBetween;
    result.answer = {0};
  }
  return result;
}

std::string_view PhaseName(Phase phase) {
  constexpr std::string_view kNames[] = {"", "before the first exchange", "between exchanges",
                                         "after the last exchange"};
  return kNames[static_cast<size_t>(phase)];
}

Message DescribeWhy(const FirstAnomalies& found, size_t index) {
  const compare::RankOrigin& origin = found.found.origins[index];
  const RankAnomaly& rank = found.RankOf(index);
  if (origin.in_exchange) return DescribeExchange(origin);
  if (rank.trace.from_outside) {
    return "no call made it of finite inputs: it came with {}, from data, a weight or a call that "
           "is "
           "not recorded"_t(rank.values.empty() ? "the call"_t : Message(rank.values[0].label));
  }
  bool clean = true;
  for (const WrongValue& value : rank.values) clean &= value.is_output;
  Message text = clean ? "its inputs are finite"_t : "its inputs hold infinities, but no NaN"_t;
  if (rank.trace.exchanges.empty()) return text;
  if (origin.exchanges_before == 0)
    return "{}, and its rank had exchanged nothing with other ranks before"_t(text);
  if (origin.exchanges_before == 1)
    return "{}, and no NaN or infinity came with the exchange before it"_t(text);
  return "{}, and no NaN or infinity came with the {} exchanges before it"_t(
      text, origin.exchanges_before);
}

std::vector<Message> DescribeTravel(const FirstAnomalies& found) {
  std::vector<Message> lines;
  for (const compare::RankHop& hop : found.found.hops) {
    if (hop.from.empty()) continue;
    const Message kinds = KindsOn(found, hop.to[0]);
    lines.push_back(
        hop.source_line.empty()
            ? "{} sent {} to {} in {}"_t(Ranks(hop.from), kinds, Ranks(hop.to), hop.name)
            : "{} sent {} to {} in {} ({})"_t(Ranks(hop.from), kinds, Ranks(hop.to), hop.name,
                                              hop.source_line));
  }
  return lines;
}

}  // namespace msprobe::anomaly
