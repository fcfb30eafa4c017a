// Which kinds of non-finite numbers the inputs and outputs of a call hold, and which the call made.
//
//   Nonfinite given, made;
//   given.Add(stats_of_an_input);  made.Add(stats_of_an_output);
//   KindsIntroduced(given, made);                       // "NaN", "Inf", "NaN and Inf" or ""
#pragma once

#include <string_view>

#include "engine/base/messages/message.h"
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

// The kinds that are in the outputs and not in the inputs. A call makes NaN when no input holds
// NaN: a softmax over nothing but -inf makes NaN. A call makes an infinity when no input holds NaN
// or an infinity: a call that gets the -inf of a mask only passes -inf on.
Message KindsIntroduced(const Nonfinite& given, const Nonfinite& made);

}  // namespace msprobe
