// Which calls take the values that other calls made, in one run. Dumps have no names for tensors: a
// value is recognised by its content (ContentIds).
//
//   const ValueFlow flow(comparison, /*target=*/true, followed);
//   for (const ValueUse& use : flow.UsesOf(leaf)) Look(use.pair);
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/compare/model/comparison.h"
#include "engine/compare/model/content_ids.h"

namespace msprobe::compare {

// A call that takes a value.
struct ValueUse {
  uint32_t record = 0;  // index into Dump::records
  int32_t pair = -1;    // index into Comparison::pairs
  int32_t row = -1;     // index into Comparison::rows: of the argument
};

class ValueFlow {
 public:
  // `followed`: for each pair whether the uses of its results are collected. Takes time and memory
  // for the arguments of all calls.
  ValueFlow(const Comparison& comparison, bool target, const std::vector<char>& followed);

  // The calls that take the content of `leaf` and were recorded after its own record; at most 64,
  // so that a constant that every call takes costs no more than another value. Empty: no recorded
  // call takes it, or it is no result of a followed pair.
  std::span<const ValueUse> UsesOf(const Leaf& leaf) const;
  // The content of a tensor (ContentIds); -1: no followed pair returned it.
  int32_t ValueOf(int32_t leaf) const {
    const int32_t value = content_->Of(target_, leaf);
    return followed_.Has(value) ? value : -1;
  }

 private:
  std::shared_ptr<const ContentIds> content_;
  bool target_;
  ContentSet followed_;              // contents that followed pairs return
  std::vector<uint32_t> first_use_;  // of each content, into uses_; one more at the end
  std::vector<ValueUse> uses_;       // grouped by content, in the order of the records
};

using ValueFlows = std::array<ValueFlow, 2>;  // of the target, of the golden

// Both, each on a thread of its own.
ValueFlows FlowsOf(const Comparison& comparison, const std::vector<char>& followed);

// Whether a leaf is a tensor that a call returns.
inline bool IsTensorResult(const Leaf& leaf) {
  return leaf.kind == LeafKind::kTensor &&
         (leaf.slot == Slot::kOutput || leaf.slot == Slot::kParameterGrad ||
          leaf.slot == Slot::kDebug);
}

}  // namespace msprobe::compare
