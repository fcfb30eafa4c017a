// What speaks for one call being where the error begins, as numbers and as words.
#pragma once

#include <string>

#include "engine/compare/explain/classify.h"
#include "engine/compare/model/comparison.h"
#include "engine/compare/model/rounding.h"

namespace msprobe::compare {

// What was seen before a pair, in execution order.
struct EarlierCalls {
  int64_t equal = 0, noise = 0, diverged = 0;  // calls
  int64_t unjudged = 0;                        // unknown, or without partner
  double largest_noise = 0;                    // severity
  int64_t total() const { return equal + noise + diverged + unjudged; }
  // "before" of divergence.h's formula.
  double JudgedFactor() const {
    return total() > 0 ? 1 - 0.5 * static_cast<double>(unjudged) / static_cast<double>(total()) : 1;
  }
};
EarlierCalls CountEarlierCalls(const Comparison& comparison, int32_t pair);

// The confidence of divergence.h's formula for a call that introduces a difference.
double ConfidenceOf(const Comparison& comparison, int32_t pair, const CallSummary& call,
                    const EarlierCalls& before);

// What a row was judged by; both sides must have it.
Rounding RoundingOfRow(const Comparison& comparison, int32_t row);
// Roundings explained for one row (rounding.h), the unit that "size" of the formula is measured in.
double ExplainedFor(const Comparison& comparison, int32_t row);
// output severity / input severity; infinity when what goes in is bit-equal.
double JumpOf(const CallSummary& call);
// The operation enlarges the rounding of its inputs by its nature, and that is all it did.
bool IsEnlargedRounding(const Comparison& comparison, int32_t pair, const CallSummary& call);

// "312 calls before it are bit-equal, 14 within rounding (largest 3.1 roundings)"
std::string DescribeEarlierCalls(const Comparison& comparison, const EarlierCalls& before);
// "bit-equal" where elements, checksums or fingerprints say so, "equal" where only statistics do.
std::string_view EqualWord(const Comparison& comparison);
// "norm of output.0 is off by 4.8% (4e5 roundings of float32)"; for non-finite, shape, text: what
// is different.
std::string DescribeRow(const Comparison& comparison, int32_t row);
// The same without the roundings, for a column of a table: "norm of output.0 is off by 4.8%".
std::string DescribeError(const Comparison& comparison, int32_t row);
// The record on the side that has it, the target's first; and its entry name.
const Record& RecordOf(const Comparison& comparison, int32_t pair);
std::string_view EntryName(const Comparison& comparison, int32_t pair);
// "train.py:41 in forward: y = gelu(x)": the user's line that made the call. A backward call has the
// line of its forward call. "" where no stack was recorded.
std::string SourceLineOf(const Comparison& comparison, int32_t pair);
// "output.0" of the row's leaf.
std::string_view LeafLabel(const Comparison& comparison, int32_t row);
// 3.1, 410, 4.1e+05: three digits for people; "inf".
std::string ShortNumber(double value);

}  // namespace msprobe::compare
