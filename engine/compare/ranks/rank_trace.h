// What is kept of the comparison of one rank, to follow wrong numbers through all ranks: the first
// wrong number, and every exchange with other ranks.
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
  // Names the exchange. All ranks that take part in it have the same key, and no other exchange has
  // it: kind, processes, and the index among such exchanges, from 0: "all_reduce [0, 1] #3".
  std::string key;
  int32_t pair = -1;           // index into Comparison::pairs
  bool gives_wrong = false;    // a value that this rank gave differs
  bool gives_unknown = false;  // a value that it gave could not be judged, or was not recorded
  bool gets_wrong = false;     // a value that it received differs
  std::string source_line;     // of the call, when one of its values differs; else ""
};

struct RankTrace {
  int32_t rank = -1;
  int32_t first = -1;     // the pair of the first wrong number; -1: there is none
  int32_t received = -1;  // index into exchanges: the one that brought that number; -1: none
  // The first wrong number was an input, and no recorded call made it: a weight, data, or the
  // result of an exchange that is not recorded, such as that of DDP.
  bool from_outside = false;
  std::vector<ExchangeCall> exchanges;  // in execution order
};

RankTrace TraceRank(const Comparison& comparison, int32_t rank);

}  // namespace msprobe::compare
