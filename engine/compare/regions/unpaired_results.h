// Whether the results that only one run has lead to values that agree.
//
// A port may split one call in two, or wrap modules: the calls in between have no partner, and yet
// are right, when later calls take their results and all values there agree. A call whose results
// no compared value depends on may be wrong, and nothing would show it.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/compare/model/comparison.h"
#include "engine/compare/model/content_ids.h"

namespace msprobe::compare {

// A tensor is recognised by its content (ContentIds). A result without a partner is compared when a
// value of its run that agrees with its partner has that content, or when a call without a partner
// takes it whose own results are compared. The backward call of a forward call without a partner is
// right when that forward call is. Where all gradients of the step agree, what a call made had no
// effect on them: only calls that change memory in place are compared nowhere then.
//
//   const UnpairedResults unpaired(comparison);   // measured and judged
//   if (unpaired.calls_compared_nowhere() > 0) ...
class UnpairedResults {
 public:
  explicit UnpairedResults(const Comparison& comparison);

  // Calls without a partner whose results are compared nowhere. A call that only the golden made
  // counts when the target was not killed, and the other way round.
  int64_t calls_compared_nowhere() const { return nowhere_; }
  // The first of them, an index into Comparison::pairs; -1: there is none.
  int32_t first_compared_nowhere() const { return first_; }
  // Whether a row without a partner is an argument, or a result that is compared. Index into
  // Comparison::rows.
  bool IsCompared(uint32_t row) const;

 private:
  class Side;
  const Comparison& c_;
  std::shared_ptr<const ContentIds> content_;
  ContentSet compared_[2];  // of the target, of the golden
  int64_t nowhere_ = 0;
  int32_t first_ = -1;
};

}  // namespace msprobe::compare
