// What sets entries of optimizers ("Optimizer.AdamW.step.0.forward") apart from other calls: their
// plain arguments are hyper-parameters and numbers of the state.
//
//   IsOptimizerState(record, leaf);          // input.state.fc.weight.step
//   DescribeHyperParameters(comparison, 7);  // "lr is 0.001 in the target, 0.01 in the golden"
#pragma once

#include <string>
#include <vector>

#include "engine/base/messages/message.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

// Whether a leaf of an optimizer's entry is part of its state. A state that differs comes from
// earlier steps, also when it is a plain number.
bool IsOptimizerState(const Record& record, const Leaf& leaf);

struct HyperParameter {
  Message name;                // "lr", "lr of group 1"
  std::string target, golden;  // "0.001"; "": not given
};
// Those that differ, of the call of an optimizer; none for other calls.
std::vector<HyperParameter> DifferingHyperParameters(const Comparison& comparison, int32_t pair);
// The hyper-parameters that differ, such as lr and max_norm; at most four, and how many more there
// are. "" when all agree, and for other calls.
Message DescribeHyperParameters(const Comparison& comparison, int32_t pair);

// Which weights the call of an optimizer moved differently, and what they share (update_pattern.h);
// "" for other calls, and where none or all that is known is as expected.
Message DescribeUpdates(const Comparison& comparison, int32_t pair);

// A weight that only one run has, which began as a copy of one that both have: the other run shares
// that one (tied weights).
struct OwnWeight {
  std::string name, shared;  // "head.decoder.weight", "embeddings.words.weight"; name "": none
  bool in_target = false;
  int32_t user = -1;  // the first call in the module of the weight; -1: not known
};
// That of the call of an optimizer.
OwnWeight OwnWeightAt(const Comparison& comparison, int32_t pair);

}  // namespace msprobe::compare
