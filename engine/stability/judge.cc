#include "engine/stability/judge.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/text.h"
#include "engine/kernels/stats.h"
#include "engine/stability/limits.h"

namespace msprobe::stability {
namespace {

Verdict Inconsistent(std::string word) {
  return {.consistent = false,
          .max_rel = std::move(word),
          .size = std::numeric_limits<double>::infinity()};
}

Verdict Inconsistent(double size) {
  Verdict verdict{.consistent = false, .size = size};
  AppendPythonFloat(&verdict.max_rel, size);
  return verdict;
}

// Magnitudes below this number count as this number. Results that are all small have a smaller one:
// a softmax over 100,000 words has results of 1e-5.
double Floor(const Question& question, const TensorView& first, ThreadPool* pool) {
  const double tolerance = question.gradients && question.perturbation != Perturbation::kNoChange
                               ? kGradientTolerance
                               : LimitsOf(first.dtype).noise;
  if (DTypeKindOf(first.dtype) != DTypeKind::kFloat) return std::sqrt(tolerance);
  const kernels::Stats stats = kernels::ComputeStats(first, pool);
  const double largest = std::max(std::abs(stats.max), std::abs(stats.min));
  const bool scales = largest > 0 && largest < 1;  // false for NaN
  return std::sqrt(tolerance) * (scales ? largest : 1);
}

double RatioLimit(const Question& question, DType first) {
  double limit = question.limit.value_or(LimitsOf(first).ratio);
  const bool noise = question.perturbation == Perturbation::kAddNoise ||
                     question.perturbation == Perturbation::kBitNoise;
  // A bit of bfloat16 is a change of up to 2^-7: to pass it on is no fault of the operation.
  if (noise)
    limit = std::max(limit, 1 + kNoiseGain * DTypeEpsilon(LimitsOf(question.perturbed).dtype));
  return limit;
}

}  // namespace

Verdict Judge(const Question& question, const TensorView& again, const TensorView& first,
              ThreadPool* pool) {
  const bool exact = question.perturbation == Perturbation::kNoChange;
  if (!std::equal(again.dims().begin(), again.dims().end(), first.dims().begin(),
                  first.dims().end()))
    return Inconsistent("shape");
  if (!exact && DTypeKindOf(first.dtype) != DTypeKind::kFloat) return {};
  const kernels::RatioStats stats =
      kernels::ComputeRatio(again, first, Floor(question, first, pool), pool);
  if (stats.nan > 0) return Inconsistent("nan");
  if (stats.inf > 0) return Inconsistent("inf");
  if (question.perturbation == Perturbation::kToCpu) {
    if (stats.flips > 0 && stats.error == 0) return Inconsistent("symbol_flipping");  // infinities
    const double balance =
        stats.count == 0 ? 0 : stats.signed_error / static_cast<double>(stats.count);
    const double most = LimitsOf(first.dtype).cpu_error;
    // Errors of few elements do not cancel out, although they have no bias.
    const double least_bias =
        most / std::sqrt(std::max<double>(1, static_cast<double>(stats.count)));
    const bool fits =
        stats.error <= most && std::abs(balance) <= std::max(kErrorBalance, least_bias);
    return fits ? Verdict{} : Inconsistent(stats.error);
  }
  if (stats.flips > 0) return Inconsistent("symbol_flipping");
  if (exact) {
    if (stats.different == 0) return {};
    // Differences below the floor have the ratio 1.
    return Inconsistent(stats.ratio > 1 ? stats.ratio - 1 : stats.error);
  }
  return stats.ratio <= RatioLimit(question, first.dtype) ? Verdict{}
                                                          : Inconsistent(stats.ratio - 1);
}

}  // namespace msprobe::stability
