// Numbers that are not finite, and whether a call made them or was given them.
//
//   Nonfinite given, made;
//   given.Add(stats_of_an_input);  made.Add(stats_of_an_output);
//   KindsIntroduced(given, made);                       // "NaN", "Inf", "NaN and Inf" or ""
#pragma once

#include <string_view>

#include "engine/kernels/stats.h"

namespace msprobe {

struct Nonfinite {
  bool nan = false, inf = false;

  void Add(const kernels::Stats& stats);
  void Add(double value);
  void Add(const Nonfinite& other) {
    nan |= other.nan;
    inf |= other.inf;
  }
  bool any() const { return nan || inf; }
};

// A NaN is introduced when no input held one, an infinity when no input held either kind: what
// masks with -inf passes -inf on, and a softmax over nothing but -inf makes NaN of it.
std::string_view KindsIntroduced(const Nonfinite& given, const Nonfinite& made);

}  // namespace msprobe
