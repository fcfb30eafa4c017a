// What to record next: the narrower configuration that says more about a first divergence.
//
//   const NextRecording next = NextOf(comparison);
//   if (next.narrower) WriteFileAtomically("config.json", ConfigOf(next, /*step=*/3, /*rank=*/-1));
//   Print("{}", next.why.Shown());
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::isolation {

struct NextRecording {
  bool narrower = false;          // false: recording more says nothing new of this divergence
  Task task = Task::kStatistics;  // of the narrower recording; its level is mix
  bool with_step_before = false;  // and of the step before
  Message why;                    // one sentence without a full stop
  bool can_replay = false;        // the culprit's tensors are there: msprobe replay says more
  Message culprit;                // name of the entry; empty when there is none
  Message advice;  // what to do where no recording says more; empty where `why` says it
  std::vector<std::string> list;  // of the configuration: parts of the entries' names
};

// The rules, the first that fits:
// - no first divergence: nothing to record
// - a call that only one run makes: nothing, the programs differ there
// - a call with other arguments (numbers, text), which introduces the error: nothing, they are why
// - a step of an optimizer: nothing, it has no tensors of its own; level mix where L0 was recorded
// - a wrong value that no recorded call made: nothing if operations were recorded, else level mix
// - modules only (L0), or the culprit is a module: level mix, what runs inside that module
// - the same, and its input is wrong already: level mix, what runs inside the module around it
// - a Cell of a compiled graph: the same, and PyNative mode, for graphs show no operations
// - an operation without its tensors: task tensor, that call and the calls that made its inputs
// - an operation with its tensors: nothing, msprobe replay executes it again
NextRecording NextOf(const compare::Comparison& comparison);

// Puts the call `pair` in the place of the first divergence: NextOf is then about this call.
void LookAt(int32_t pair, compare::Comparison* comparison);

// The content of config.json. `step`, `rank`: the only ones that are recorded; -1: all.
std::string ConfigOf(const NextRecording& next, int step, int rank);

// The weights differ that a step begins with, although the step before agrees: no recorded call of
// the step is at fault. `why` says so; where the optimizers of the step before were not recorded,
// they are next.
NextRecording NextOfUpdate(Message why, bool optimizers_recorded);

}  // namespace msprobe::isolation
