// The ranks of a group must make its collective calls in one order. A rank that leaves out one of
// them, or makes one more, exchanges other numbers from there on, or waits for ever: a recording
// that hangs ends before the call for which a rank waits, and holds no wrong number.
//
//   JudgeCollectives(results);            // all ranks of all steps
//   results[1].first.why;                 // "rank 1 goes on without this call ..."
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

struct RankResult;

// A collective call that one run of a rank makes and the other does not, although both go on.
struct LoneCollective {
  int32_t pair = -1;  // index into Comparison::pairs
  bool in_target = false;
  std::string key;   // of the run that makes it (exchange_keys.h): "all_reduce [0, 1] #3"
  std::string name;  // "Distributed.all_reduce.3.forward"
  std::string source_line;
};

// What is kept of one rank.
struct CollectiveOrder {
  std::vector<LoneCollective> lone;  // in the order of the calls, the first 256
  // Of a target that was cut short: the keys of the golden's collective calls that come after its
  // end, or that failed in the target, of each kind and group the first.
  std::vector<std::string> after_end;
};

// `rank`: of both runs.
CollectiveOrder CollectiveOrderOf(const Comparison& comparison, int32_t rank);

// Makes the first collective call that only some ranks of its group make the first divergence of a
// rank that makes another one than the golden, unless a number is wrong before it. `results` are
// ordered by step.
void JudgeCollectives(std::span<RankResult> results);

}  // namespace msprobe::compare
