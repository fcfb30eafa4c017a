// The evidence that an error begins at a call: the calls before it, its inputs, the size of its
// error; as numbers and as words.
#pragma once

#include <string>

#include "engine/base/messages/message.h"
#include "engine/compare/explain/classify.h"
#include "engine/compare/judge/limits.h"
#include "engine/compare/model/comparison.h"
#include "engine/compare/model/value_names.h"

namespace msprobe::compare {

// The calls before a pair, in execution order, counted by how they were judged.
struct EarlierCalls {
  int64_t equal = 0, noise = 0, diverged = 0;  // calls
  int64_t unjudged = 0;                        // unknown, or without a partner
  double largest_noise = 0;                    // the largest severity of a row with noise
  int64_t total() const { return equal + noise + diverged + unjudged; }
  // The factor `before` of the confidence (divergence.h).
  double JudgedFactor() const {
    return total() > 0 ? 1 - 0.5 * static_cast<double>(unjudged) / static_cast<double>(total()) : 1;
  }
};
EarlierCalls CountEarlierCalls(const Comparison& comparison, int32_t pair);

// The confidence (divergence.h) that a call introduces a difference.
double ConfidenceOf(const Comparison& comparison, int32_t pair, const CallSummary& call,
                    const EarlierCalls& before);

// How many roundings are explained for one row (limits.h).
double ExplainedFor(const Comparison& comparison, int32_t row);
// Output severity / input severity; infinity when all inputs are bit-equal.
double JumpOf(const CallSummary& call);

// "312 calls before it are bit-equal, 14 within rounding (largest 3.1 roundings)"
Message DescribeEarlierCalls(const Comparison& comparison, const EarlierCalls& before);
// "bit-equal" when elements, checksums or fingerprints were compared, "equal" when only statistics
// were.
Message EqualWord(const Comparison& comparison);
// "norm of output.0 is off by 4.8% (4e5 roundings of float32)". For NaN, shapes and texts: what is
// different. `row` may be -1: a document of an earlier comparison states a class without a value.
Message DescribeRow(const Comparison& comparison, int32_t row);
// DescribeRow without the roundings, for a column of a table: "norm of output.0 is off by 4.8%".
Message DescribeError(const Comparison& comparison, int32_t row);
// A plain value as reports show it: 0.001, "tanh".
std::string PlainValue(const Leaf& leaf);
// The target's record of a pair, or the golden's when the target has none; and the name of its
// entry.
const Record& RecordOf(const Comparison& comparison, int32_t pair);
std::string_view EntryName(const Comparison& comparison, int32_t pair);
// "layers.3.mlp (LlamaMLP)": the innermost module in which an API ran. A backward call ran in the
// module of its forward call. "" for calls of modules, and where it is not known.
std::string ModuleAround(const Comparison& comparison, int32_t pair);
// The first input of the call in memory that nobody has written, an index into Comparison::rows;
// -1: there is none.
int32_t UnwrittenInput(const Comparison& comparison, int32_t pair);
// 3.1, 410, 4.1e+05: three digits for people; "inf".
std::string ShortNumber(double value);

}  // namespace msprobe::compare
