// The verdict of one row, and why.
//
// Equal: there is evidence of equal bits. Our fingerprints, checksums or all elements are equal, or
// all recorded numbers and counts are spelled the same. Noise: the values are no further apart than
// rounding explains (rounding.h). NaN is never evidence of equality. NaN on both sides is unknown,
// unless fingerprints or checksums are equal. NaN or an infinity on one side only differs, and so
// do infinities of opposite sign. A number that only one side recorded is left out; a row that has
// no number on both sides is unknown.
#pragma once

#include <string_view>

#include "engine/base/messages/message.h"
#include "engine/compare/judge/limits.h"
#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

struct JudgeOptions {
  Limits limits;  // how many roundings are explained
  // How many values the call sums to make one element of this tensor (a matmul's inner dimension),
  // as far as its name and shapes tell; 0: not known.
  double terms = 0;
  // The size of the numbers that the call adds to make this tensor (for x - y the size of x and y);
  // 0: not known.
  double magnitude = 0;
  // A coarser float dtype in which values before this one were computed; empty: there is none.
  ElementType noise_dtype;
  // The numbers of both tensors without their extremes; null: not known.
  const LeafRest *target_rest = nullptr, *golden_rest = nullptr;
};

// How far the statistics of two leaves are apart. NaN when a statistic is not a number, and when
// the leaves have different kinds or shapes.
struct Differences {
  // diff = target - golden, rel = |diff / golden| (not percent).
  double max_diff = kernels::Diff::kNaN, min_diff = kernels::Diff::kNaN,
         mean_diff = kernels::Diff::kNaN, norm_diff = kernels::Diff::kNaN;
  double max_rel = kernels::Diff::kNaN, min_rel = kernels::Diff::kNaN,
         mean_rel = kernels::Diff::kNaN, norm_rel = kernels::Diff::kNaN;
};
Differences DifferencesOf(const Leaf& target, const Leaf& golden);

// Judges by what both leaves recorded: statistics, counts and fingerprints; in mode kChecksum by
// checksums alone. Fills verdict, reason and severity of `m`. The severity is the largest
// difference of a statistic, divided by a scale:
//   max, min  the tensor's largest value, max(|max|, |min|)
//   norm      the norm
//   mean      the root of the mean square, norm / sqrt(n): the terms of a mean cancel each other
// Where both tensors have extremes (options.target_rest), maximum, minimum and norm of the other
// elements count as well, by their own scale: beside -1e9 every error of a score is nothing.
// When options.magnitude is larger than that scale, it is the scale: x - y has the rounding of x
// and y.
void JudgeLeaves(const Leaf& target, const Leaf& golden, Mode mode, const JudgeOptions& options,
                 Measure* m);

// Judges by the elements of both tensors (tensor mode). The severity is the larger one of: the
// largest error divided by the tensor's largest value; the relative L2 error.
void JudgeDiff(const kernels::Diff& diff, const Leaf& target, const Leaf& golden,
               const JudgeOptions& options, Measure* m);

// "no partner on the other side"
Message ReasonText(Reason reason);
std::string_view VerdictName(RowVerdict verdict);  // "equal", "noise", "differs", "unknown"
std::string_view ClassName(
    CallClass call_class);             // "equal", "noise", "introduced", "inherited", "unknown"
std::string_view ModeName(Mode mode);  // "statistics", "checksums", "tensors"
// The same for people.
Message WordOf(CallClass call_class);
Message WordOf(Mode mode);

// Whether a row is unknown for a reason that says nothing against a run, such as a None that both
// sides recorded.
bool IsNeutral(const Measure& m);

}  // namespace msprobe::compare
