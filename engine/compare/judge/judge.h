// The verdict of one row, and why.
//
// Equal means evidence of equal bits: our fingerprint, a checksum, every element, or every recorded
// number and count spelled the same. Noise means no further apart than rounding explains
// (rounding.h). NaN is never evidence of equality: NaN on both sides is unknown unless fingerprint
// or checksum agree, NaN or an infinity on one side only differs, and so do infinities of opposite
// sign. A number that one side did not record is not held against the other; with nothing in common
// the row is unknown.
#pragma once

#include <string_view>

#include "engine/compare/model/comparison.h"

namespace msprobe::compare {

struct JudgeOptions {
  double tolerance = 1;
  // Values summed into one element of this row's tensor, where the call tells (a matmul's inner
  // dimension); 0: not known.
  double terms = 0;
  // Size of what was added up to make this row's tensor, where the call tells (x - y: that of x and
  // y); 0: not known.
  double magnitude = 0;
  // Roundings that are explained, in place of those of rounding.h; -1: those.
  double explained = -1;
  // A coarser float dtype that a call before this one computed in on one side; "": none did.
  std::string_view coarse_dtype;
};

// How far the statistics of two leaves are apart; NaN where one of them is not a number, or where
// the leaves are of other kinds or shapes.
struct Differences {
  // target - golden, and |diff / golden| (not percent)
  double max_diff = kernels::Diff::kNaN, min_diff = kernels::Diff::kNaN,
         mean_diff = kernels::Diff::kNaN, norm_diff = kernels::Diff::kNaN;
  double max_rel = kernels::Diff::kNaN, min_rel = kernels::Diff::kNaN,
         mean_rel = kernels::Diff::kNaN, norm_rel = kernels::Diff::kNaN;
};
Differences DifferencesOf(const Leaf& target, const Leaf& golden);

// By what both leaves recorded: statistics, counts, fingerprints; by checksum alone where `mode` is
// kMd5. Fills the verdict, the reason and the severity of `m`. Severity compares
//   max, min  with the tensor's scale, max(|max|, |min|)
//   norm      with the norm
//   mean      with the root of the mean square, norm / sqrt(n): a mean is a sum that cancels
// each of them with options.magnitude where that is larger: the rounding of x - y is that of x and
// y.
void JudgeLeaves(const Leaf& target, const Leaf& golden, Mode mode, const JudgeOptions& options,
                 Measure* m);

// By the elements of both tensors (tensor mode). Severity is the larger of the worst element's
// error against the tensor's largest value and the relative L2 error.
void JudgeDiff(const kernels::Diff& diff, const Leaf& target, const Leaf& golden,
               const JudgeOptions& options, Measure* m);

// "no partner on the other side"
std::string_view ReasonText(Reason reason);
std::string_view VerdictName(RowVerdict verdict);  // "equal", "noise", "differs", "unknown"
std::string_view ClassName(
    CallClass call_class);             // "equal", "noise", "introduced", "inherited", "unknown"
std::string_view ModeName(Mode mode);  // "statistics", "checksums", "tensors"

// Unknown rows that say nothing against a run: nothing recorded by design.
bool IsNeutral(const Measure& m);

// Elements of a shape as dumps spell it, "[2, 3]" -> 6; "[]" -> 1; 0 for an empty tensor; -1 when
// it is no shape.
double ElementCount(std::string_view shape);

}  // namespace msprobe::compare
