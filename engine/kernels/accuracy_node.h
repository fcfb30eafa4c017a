// The intermediate result of ComputeAccuracy for a part of two tensors, and what both versions of
// the kernel derive from the limits.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "engine/kernels/accuracy.h"
#include "engine/kernels/diff_node.h"

namespace msprobe::kernels {

// The limits as factors. 2^e below is the power of two of |G|: the largest one that is not above
// |G|, but at least `least` (of subnormal numbers, that of the smallest normal one).
struct AccuracyFactors {
  explicit AccuracyFactors(const AccuracyLimits& of) : limits(of) {
    const FloatFormat rounded = FormatOf(limits.golden_as), ulp = FormatOf(limits.ulp_of);
    up = PowerOfTwo(rounded.mantissa);
    down = rounded.epsilon();
    ulp_up = PowerOfTwo(ulp.mantissa);
    least = rounded.smallest_normal();
    at_zero = limits.unit_of_one_at_zero ? 1.0 : least;
    largest = rounded.largest;
  }

  // 2^e is kept at or below this, so that 2^-e is a normal number.
  static constexpr double kMost = 0x1p1022;

  double Power(double golden) const {
    if (golden == 0) return at_zero;
    const uint64_t bits = std::bit_cast<uint64_t>(golden) & 0x7ff0000000000000u;
    return std::min(std::max(std::bit_cast<double>(bits), least), kMost);
  }
  static double Inverse(double power) {
    return std::bit_cast<double>((uint64_t{2046} << 52) - std::bit_cast<uint64_t>(power));
  }
  // G rounded to the format, ties to even; may be above `largest`, which stands for infinity.
  double Round(double golden, double power) const {
    return std::nearbyint(golden * Inverse(power) * up) * (power * down);
  }

  AccuracyLimits limits;
  double up, down;  // 2^mantissa and its inverse, of the format to which the golden is rounded
  double ulp_up;    // 2^mantissa of the format of the ULP
  double least, at_zero, largest;
};

struct AccuracyNode : Accuracy {
  static AccuracyNode Combine(const AccuracyNode& a, const AccuracyNode& b) {
    AccuracyNode r = a;
    for (const auto sum : {&Accuracy::count,
                           &Accuracy::finite,
                           &Accuracy::both_nan,
                           &Accuracy::same_infinity,
                           &Accuracy::nonfinite_failures,
                           &Accuracy::unclipped_failures,
                           &Accuracy::nan_errors,
                           &Accuracy::infinite_errors,
                           &Accuracy::infinite_golden,
                           &Accuracy::within_1e2,
                           &Accuracy::within_1e3,
                           &Accuracy::within_1e4,
                           &Accuracy::above,
                           &Accuracy::below,
                           &Accuracy::unequal,
                           &Accuracy::inexact,
                           &Accuracy::small,
                           &Accuracy::small_failures,
                           &Accuracy::normal,
                           &Accuracy::relative_failures,
                           &Accuracy::ulp_above}) {
      r.*sum += b.*sum;
    }
    for (const auto sum : {&Accuracy::dd, &Accuracy::gg, &Accuracy::dg, &Accuracy::squared_errors,
                           &Accuracy::sum_relative, &Accuracy::sum_ulp}) {
      r.*sum += b.*sum;
    }
    for (const auto most : {&Accuracy::max_device, &Accuracy::max_golden, &Accuracy::max_error,
                            &Accuracy::max_relative, &Accuracy::max_ulp}) {
      r.*most = std::max(r.*most, b.*most);
    }
    return r;
  }

  // Adds a pair that is not finite.
  void AddNonfinite(double d, double g, const AccuracyFactors& factors) {
    double r = g;
    if (std::isfinite(g)) {
      r = factors.Round(g, factors.Power(g));
      if (std::fabs(r) > factors.largest) r = std::copysign(kInfinite, g);
    }
    const double error = std::fabs(d - g);
    infinite_golden += std::isinf(g);
    nan_errors += std::isnan(error);
    infinite_errors += std::isinf(error);
    const bool nan = std::isnan(d) && std::isnan(r);
    both_nan += nan;
    same_infinity += d == r;
    unequal += !nan && d != r;
    inexact += d != g && !(std::isnan(d) && std::isnan(g));
    above += d > r;
    below += d < r;
    if (!nan) {
      const double clipped_r = std::clamp(r, -factors.largest, factors.largest);
      const double clipped =
          std::fabs(std::clamp(d, -factors.largest, factors.largest) - clipped_r);
      const AccuracyLimits& of = factors.limits;
      nonfinite_failures += !(clipped / (std::fabs(clipped_r) + of.epsilon) <= of.rtol);
      const bool beyond = factors.Round(clipped, factors.Power(clipped)) > factors.largest;
      unclipped_failures += beyond || !(clipped / (std::fabs(g) + of.epsilon) <= of.rtol);
    }
    if (!std::isfinite(error)) return;
    max_error = std::max(max_error, error);
    const double relative = error / (std::fabs(g) + factors.limits.epsilon);
    within_1e2 += relative < 0.01;
    within_1e3 += relative < 0.001;
    within_1e4 += relative < 0.0001;
  }

 private:
  static constexpr double kInfinite = std::numeric_limits<double>::infinity();
};

}  // namespace msprobe::kernels
