// What to record next: the narrower configuration that says more about a first divergence.
//
//   const NextRecording next = NextOf(comparison, /*step=*/3);
//   if (next.narrower) MSPROBE_RETURN_IF_ERROR(WriteFileAtomically("config.json", next.config));
//   Print("{}", next.why);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/compare/model/comparison.h"

namespace msprobe::isolation {

struct NextRecording {
  bool narrower = false;          // false: recording more says nothing new of this divergence
  std::string config;             // config.json; "" when it is not narrower
  std::string why;                // one sentence without a full stop
  bool can_replay = false;        // the culprit's tensors are there: msprobe replay says more
  std::string culprit;            // name of the entry; "" when there is none
  std::vector<std::string> list;  // of the configuration: parts of the entries' names
};

// The rules, the first that fits:
// - no first divergence: nothing to record
// - a call with other arguments (numbers, text), which introduces the error: nothing, they are why
// - modules only (L0), or the culprit is a module: level mix, what runs inside that module
// - the same, and its input is wrong already: level mix, what runs inside the module around it
// - an operation without its tensors: task tensor, that call and the calls that made its inputs
// - an operation with its tensors: nothing, msprobe replay executes it again
// `step`: the step of both dumps; -1: not known, all steps.
NextRecording NextOf(const compare::Comparison& comparison, int step);

}  // namespace msprobe::isolation
