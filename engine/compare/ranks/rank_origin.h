// Finds the ranks on which wrong numbers begin. When the first wrong number of a rank came with an
// exchange (exchange.h), it is followed back to the rank that gave it to that exchange.
//
//   RankOrigins found = FindOrigins(traces);          // rank_trace.h
//   for (const RankOrigin& o : found.origins) Print("rank {}", traces[o.trace].rank);
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/compare/ranks/rank_trace.h"

namespace msprobe::compare {

// A rank on which wrong numbers begin.
struct RankOrigin {
  size_t trace = 0;  // index into the traces
  // The wrong number came with an exchange, and no rank is known to have given a wrong number to
  // it: the exchange itself is the place.
  bool in_exchange = false;
  int64_t exchanges_before = 0;    // length of the longest chain of exchanges before this place
  std::vector<int32_t> reached;    // ranks that got their first wrong number from here
  std::vector<int32_t> not_known;  // ranks that took part in the exchange and have no dump here, or
                                   // whose numbers could not be judged
};

// An exchange that brought one or more ranks their first wrong number.
struct RankHop {
  // The call on the first rank of `from`; on the first rank of `to` when `from` is empty.
  std::string name, source_line;
  std::vector<int32_t> from, to;
  int64_t layer = 0;  // length of the longest chain of exchanges before it
};

struct RankOrigins {
  std::vector<RankOrigin> origins;  // the earliest first
  // Ranks whose first wrong number came from outside the recording. It may come from an origin, in
  // a way that was not recorded. When all ranks are such, they are the origins and this is empty.
  std::vector<RankOrigin> from_outside;
  std::vector<RankHop> hops;  // in the order in which they happened
};

RankOrigins FindOrigins(std::span<const RankTrace> traces);

// "0-2, 5": numbers in increasing order.
std::string RankList(std::span<const int32_t> ranks);

}  // namespace msprobe::compare
