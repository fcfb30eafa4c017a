// What is kept of one rank's comparison to follow a wrong number over all ranks: where it first
// shows, and every exchange with other ranks.
//
//   RankTrace trace = TraceRank(comparison, 3);       // then the comparison can be freed
//   RankOrigins found = FindOrigins(traces);          // rank_origin.h
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

struct ExchangeCall {
  std::string name;  // "Distributed.all_reduce.3.forward"
  // The same on all ranks that take part in one exchange, and in no other: kind, processes, and the
  // how manieth of these it is.
  std::string key;
  int32_t pair = -1;           // index into Comparison::pairs
  bool gives_wrong = false;    // what this rank put in differs
  bool gives_unknown = false;  // it could not be judged, or was not recorded
  bool gets_wrong = false;     // what it got out differs
  std::string source_line;     // where something is wrong; else ""
};

struct RankTrace {
  int32_t rank = -1;
  int32_t first = -1;     // pair of the first wrong number; -1: none
  int32_t received = -1;  // index into exchanges: the one it came with; -1: none
  // The first wrong number was wrong when it came to its call, and nothing recorded made it: a
  // weight, data, or an exchange that is not recorded, such as DDP's.
  bool from_outside = false;
  std::vector<ExchangeCall> exchanges;  // in execution order
};

RankTrace TraceRank(const Comparison& comparison, int32_t rank);

}  // namespace msprobe::compare
