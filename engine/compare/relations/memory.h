// Memory that outlives the step: weights and buffers that calls write to. What counts is what they
// hold when the step ends; a weight that is changed and changed back is what it was.
//
//   const std::vector<MemoryPair> pairs = PairMemories(relations);
//   pairs[0].mine.last;   // the value that the target leaves in it
#pragma once

#include <vector>

#include "engine/compare/relations/relate.h"

namespace msprobe::compare::relations {

struct Memory {
  ValueId root = kNoId;          // what the step finds in it, or what an optimizer left there
  ValueId last = kNoId;          // what it holds in the end
  std::vector<ValueId> written;  // what it was given, in order
  CallId call = kNoId;           // the last call that wrote to it; kNoId: nobody did
  int32_t leaf = kNoId;          // `last` in that call
};

// Of one run, in the order of the first calls that write to them.
std::vector<Memory> MemoriesOf(const Graph& run);

struct MemoryPair {
  Memory mine, golden;  // `golden.root` is kNoId: not known
};

// Memory that either run writes to.
std::vector<MemoryPair> PairMemories(const Relations& relations);

}  // namespace msprobe::compare::relations
