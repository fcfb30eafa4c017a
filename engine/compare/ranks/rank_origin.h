// Where a wrong number began, over all ranks: each rank's first one is followed back through the
// exchange it came with, to the rank that put it in.
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
  // Every rank gave right numbers to the exchange that this one's came with (or those that gave
  // them are not here): the exchange itself is the place.
  bool in_exchange = false;
  int64_t exchanges_before = 0;    // in the longest chain of exchanges that lead there
  std::vector<int32_t> reached;    // ranks whose first wrong number came from here
  std::vector<int32_t> not_known;  // ranks that took part and are not here, or gave what is unknown
};

// A wrong number goes from rank to rank. Only those that bring a rank its first one.
struct RankHop {
  std::string name, source_line;  // of the call on the first of `from`; on the first of `to` when
                                  // nobody is known to have given it
  std::vector<int32_t> from, to;
  int64_t layer = 0;  // exchanges before it
};

struct RankOrigins {
  std::vector<RankOrigin> origins;  // the earliest first
  // Whose first wrong number came from outside the recording, while others made theirs: it may have
  // come from these. (Where all of them came from outside, these are the origins.)
  std::vector<RankOrigin> from_outside;
  std::vector<RankHop> hops;  // in the order in which they happened
};

RankOrigins FindOrigins(std::span<const RankTrace> traces);

// "0-2, 5": numbers in increasing order.
std::string RankList(std::span<const int32_t> ranks);

}  // namespace msprobe::compare
